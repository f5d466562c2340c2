"""The components of a service (engine, decoder, router) as finished pods. Pure."""
