"""The InferenceService: resolve, plan and status. Pure."""
