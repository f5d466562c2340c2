"""Kubernetes for controllers: client, informers, work queue, applier, leader election and CRDs, independent of models.

The flow: a Client lists and watches into Stores (Informer), changes put keys into a WorkQueue, and the workers of a
Controller call ``reconcile(key)``, which only reads Stores and writes through an Applier, a StatusWriter and a
Recorder. A Manager runs all of it.
"""
