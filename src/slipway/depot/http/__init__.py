"""The depot's HTTP server."""
