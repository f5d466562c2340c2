"""The Python package of the controller, the gateway's control plane, the loader, the hub and the depot.

A package imports only packages below it. ``docs/dev/code-map.md`` shows the order, and the lint step checks it.
"""

__version__ = "0.4.0"
