"""What the files of a model say about it: configuration, parameters and capabilities. Pure."""
