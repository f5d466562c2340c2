"""A model hub for closed networks: serves a folder of files with the protocol of the Hugging Face Hub, read-only.

``folder`` reads the disk, ``repository`` and ``documents`` are pure, and ``server`` speaks HTTP. Engines and loaders
find it through their usual variable ``HF_ENDPOINT``.
"""
