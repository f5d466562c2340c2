"""A model hub for closed networks: serves a folder of files by the protocol of the Hugging Face Hub, read-only.

``folder`` reads the world, ``repository`` and ``documents`` are pure, ``server`` speaks HTTP. Engines and loaders find
it through their usual variable ``HF_ENDPOINT``.
"""
