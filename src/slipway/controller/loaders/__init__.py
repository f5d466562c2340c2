"""Communication with the loaders in pods: the controller reads their progress and sends the adapters that an engine
needs."""
