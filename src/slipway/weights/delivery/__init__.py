"""Delivery of models, on claims or in images, to workloads that Slipway does not own. Pure."""
