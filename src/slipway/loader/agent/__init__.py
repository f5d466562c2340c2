"""The sidecar of an engine: fetches the adapters that the controller wishes, and has the engine load them."""
