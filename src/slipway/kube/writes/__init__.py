"""Writes: an owner's children, a status, Events."""
