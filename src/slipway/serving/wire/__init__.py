"""Formats that the controller, the loader and the depot exchange: documents, tokens and addresses. Pure."""
