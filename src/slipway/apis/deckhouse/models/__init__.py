"""Models and ClusterModels: plan, uploads and status. Pure."""
