"""The text of haproxy.cfg, one subject per module. Pure."""
