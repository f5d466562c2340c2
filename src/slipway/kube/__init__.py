"""Kubernetes for controllers: client, informers, work queue, applier, leader election, CRDs. Knows nothing of models.

The flow: a Client lists and watches into Stores (Informer), changes put keys into a WorkQueue, the workers of a
Controller call ``reconcile(key)``, which reads Stores only and writes through an Applier, a StatusWriter and a
Recorder. A Manager runs all of it.
"""
