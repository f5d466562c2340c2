"""Documents about models: reports of a loader, and manifests in a registry. Pure."""
