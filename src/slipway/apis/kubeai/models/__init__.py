"""The Model: resolve, plan and status. Pure."""
