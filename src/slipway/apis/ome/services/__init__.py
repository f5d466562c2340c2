"""InferenceServices: resolution, plan of the child objects, and status. Pure."""
