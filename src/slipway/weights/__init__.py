"""Weights: where they come from, where they lie, who brings them and how far that is. Pure, and of no API."""
