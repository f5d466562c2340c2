"""The controller process, which reconciles the resources of every enabled API, scales models and communicates with
loaders."""
