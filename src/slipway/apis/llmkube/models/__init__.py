"""The Model: its spec, the location of its weights, the Jobs that load the weights, and its status. Pure."""
