"""Kubernetes for controllers, independent of models: client, informers, work queue, applier, leader election and CRDs.

An Informer lists and watches with a Client and fills a Store. Changes put keys into a WorkQueue, and the workers of a
Controller call ``reconcile(key)``, which only reads Stores and writes through an Applier, a StatusWriter and a
Recorder. A Manager runs all of them.
"""
