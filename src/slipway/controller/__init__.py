"""The controller process: it reconciles the resources of every enabled API, scales models and talks to loaders."""
