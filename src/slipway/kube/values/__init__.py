"""Values as Kubernetes writes and compares them: names, quantities, times and patches. Pure."""
