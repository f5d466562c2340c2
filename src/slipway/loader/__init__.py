"""The loader: downloads weights into a folder, removes them, publishes models, and loads adapters into an engine.

It runs in Jobs (``load``, ``evict``) and beside engines (``serve``). ``sources`` list files and read them from any
position, ``download`` verifies and stores them, ``disk`` completes a folder, and ``agent`` is the sidecar. The disk is
always consistent: killing the loader loses only the bytes in flight.
"""
