"""Loads: fetch a source into a folder, verify it, and report what it contains."""
