"""The ModelRouter and the LoRAAdapter: Services that lead to an InferenceService's pods. Pure."""
