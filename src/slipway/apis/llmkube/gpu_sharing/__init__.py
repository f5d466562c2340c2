"""The GPUQuota and the ModelPool, through which services share GPUs. Pure."""
