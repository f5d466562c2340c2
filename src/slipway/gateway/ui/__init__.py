"""The web page below ``/ui/``, which shows the models, their states and the reasons of failures, and has a chat.
Read-only.

The control process serves the files in ``static`` and a small JSON API (docs/reference/page.md). ``resources`` watches
the users' resources, ``overview`` combines them with the routing table, and ``app`` answers requests. HAProxy's rules
are in ``rules/page.py``.
"""
