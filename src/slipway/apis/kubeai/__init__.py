"""KubeAI: the Model of kubeai.org/v1."""
