"""The facts in a model's files: configuration, parameters and capabilities. Pure."""
