"""The loader: downloads weights into a folder, removes them, publishes models, and loads adapters into an engine.

The loader runs in Jobs (``load``, ``evict``) and as the sidecar of an engine (``serve``). ``sources`` lists the files
of a source and reads them from any offset, ``download`` stores and verifies them, ``disk`` manages the target
directory, and ``agent`` is the sidecar. The directory is consistent at any time: if the loader is killed, only the
bytes in flight are lost.
"""
