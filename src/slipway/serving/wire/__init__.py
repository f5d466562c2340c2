"""Formats that controller, loader and depot exchange: documents, tokens and addresses. Pure."""
