"""Depot: the door of the registry. It signs the registry's tokens and takes what users upload.

Any number of replicas run, all alike: what they know lies in the registry and in the cluster.
"""
