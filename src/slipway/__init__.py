"""slipway: the Python package of the controller, the gateway's control plane, the loader, the hub and the depot.

Imports point downwards: docs/dev/code-map.md shows the packages, and the lint step checks them.
"""

__version__ = "0.4.0"
