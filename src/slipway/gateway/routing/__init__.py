"""The routing table of model IDs, API keys and endpoints, and the detection of endpoints that must get no requests.
Pure."""
