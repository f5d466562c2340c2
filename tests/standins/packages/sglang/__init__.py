"""A stand-in of SGLang under its own command."""
