"""Ollama: the command ``ollama``, its server, its store of models and its way to a registry.

The real llama-server answers where it is installed and the model is a real one; else a Generator does.
"""
