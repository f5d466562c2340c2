"""Requests to the API server: client, credentials, errors, and answers that cannot be decoded."""
