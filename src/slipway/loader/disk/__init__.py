"""The directory that a load fills: its partial files and progress, the reuse of files, and removal."""
