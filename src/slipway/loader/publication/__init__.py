"""Publications: a source becomes an artifact of a registry, without a disk."""
