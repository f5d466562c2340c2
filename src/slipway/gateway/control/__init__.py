"""Tasks of the control process: update HAProxy, wake models, answer requests, fetch keys."""
