"""The InferenceService: its validation, plan and status. Pure."""
