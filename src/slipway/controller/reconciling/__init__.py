"""Reconciliation: applying a resource's plan, delivering models, and writing the status and Events."""
