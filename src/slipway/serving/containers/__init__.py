"""Parts of pods, without knowledge of models: variables, volumes, rights, and why a pod is not ready. Pure."""
