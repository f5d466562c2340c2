"""Parts of pods, without knowledge of models: variables, volumes, permissions, and why a pod is not ready. Pure."""
