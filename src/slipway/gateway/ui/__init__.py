"""The page below ``/ui/``: which models there are, how they are, why one does not answer, and how to ask one.

Read-only. The control process serves the files of ``static`` and a small JSON interface (docs/reference/page.md).
``resources`` reads what users declared, ``overview`` makes of it and of the routing table what the page shows, ``app``
answers requests, and ``access`` has HAProxy's rules.
"""
