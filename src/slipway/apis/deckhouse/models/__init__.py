"""Model and ClusterModel: plan, upload and status. Pure."""
