"""The Jobs that load and publish weights, their progress, and their order. Pure."""
