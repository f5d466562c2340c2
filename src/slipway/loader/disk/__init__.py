"""The folder that a load fills: part files, progress, reuse and removal."""
