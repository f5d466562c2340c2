"""Jobs that load and publish weights, their progress, and whose turn it is. Pure."""
