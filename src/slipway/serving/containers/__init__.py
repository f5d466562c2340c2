"""Parts of pods that do not depend on models: variables, volumes and permissions, and the reasons why a pod is not
ready. Pure."""
