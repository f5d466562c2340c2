"""Requests to the API server: client, credentials, errors, and responses that cannot be decoded."""
