"""slipway: the Python package behind the collection's controller, gateway control plane and hub.

Imports go one way (checked by the lint step, see ``pyproject.toml``)::

    kube <- serving <- engines, artifacts <- apis <- controller
    kube, serving <- gateway
"""

__version__ = "0.4.0"
