"""Reconciliation: apply a resource's plan, deliver models, write its status and its Events."""
