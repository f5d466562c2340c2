"""The loader's commands, and the termination messages that they write."""
