"""Builders of statuses: conditions, reports, adapters, and why a model does not answer. Pure."""
