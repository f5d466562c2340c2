"""Depot: signs the tokens of the model registry and accepts users' uploads.

Any number of identical replicas can run, because all state is in the registry and in the cluster.
"""
