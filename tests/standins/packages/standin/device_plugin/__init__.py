"""Device plugins for nodes without GPUs: started by the commands of the real ones, with the kubelet's own protocol."""
