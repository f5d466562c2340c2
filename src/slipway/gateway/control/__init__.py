"""Tasks of the control process, which update HAProxy, wake models, answer requests and fetch keys."""
