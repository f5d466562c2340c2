"""The text of haproxy.cfg, with one module per subject. Pure."""
