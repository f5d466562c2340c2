"""Models: resolution, plan of the child objects, caches and status. Pure."""
