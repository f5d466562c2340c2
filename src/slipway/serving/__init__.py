"""The words that every serving API shares: server, scale, route, plan, world. It knows no API and no engine."""
