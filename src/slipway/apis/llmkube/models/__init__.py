"""The Model: its spec, the place of its weights, the Jobs that load them, and its status. Pure."""
