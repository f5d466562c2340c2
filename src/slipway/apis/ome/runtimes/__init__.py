"""Runtimes: which one serves a model, and why the others do not. Pure."""
