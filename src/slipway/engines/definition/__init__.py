"""The definition of an engine: flags, log patterns, paths, and retired arguments. Pure."""
