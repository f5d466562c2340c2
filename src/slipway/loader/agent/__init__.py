"""The sidecar of an engine: fetches the adapters that the controller requests, and loads them into the engine."""
