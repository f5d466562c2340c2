"""The words that every serving API shares: server, scale, route, plan, world. Knows Kubernetes, no API and no engine."""
