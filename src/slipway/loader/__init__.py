"""The only program that moves bytes: fetches weights into a folder, takes them away again, hands adapters to an engine.

It runs in Jobs (``load``, ``evict``) and beside engines (``serve``). ``sources`` know what there is and give its bytes
from any position on; ``transfer`` makes verified files of them, ``folder`` a complete folder; ``agent`` is the sidecar.
Everything on the disk is right at every moment: a kill costs no more than the bytes that were on their way.
"""
