"""Artifacts: model files, their locations, and what they contain. Pure data and functions that move no bytes."""
