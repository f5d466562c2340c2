"""Locations of weights: parses references and URLs, decides which addresses a loader may use, and redacts secrets.
Pure."""
