"""Writers of an owner's children, of a status and of Events."""
