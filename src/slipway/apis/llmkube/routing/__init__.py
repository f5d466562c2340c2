"""ModelRouters and LoRAAdapters, whose Services route requests to the pods of InferenceServices. Pure."""
