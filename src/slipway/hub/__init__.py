"""A read-only model hub for closed networks, which serves a directory with the protocol of the Hugging Face Hub.

``folder`` reads the disk, ``repository`` and ``documents`` are pure, and ``server`` handles HTTP. Engines and loaders
get the hub's URL from their usual variable ``HF_ENDPOINT``.
"""
