"""Publication of a source as an artifact in a registry, without storing its files on a disk."""
