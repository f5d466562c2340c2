"""Which Service answers for a model ID, and how many replicas its requests need. Pure."""
