"""Runs the CI stages and lanes that tests/lanes.toml defines."""
