"""Builders of statuses: conditions, reports, adapters, and the reason why a model serves no requests. Pure."""
