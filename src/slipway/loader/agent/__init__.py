"""An engine's sidecar, which downloads the adapters that the controller requests and loads them into the engine."""
