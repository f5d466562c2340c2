"""Finished pod templates and scaling for the components of a service: engine, decoder and router. Pure."""
