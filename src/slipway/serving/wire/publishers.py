"""Names of the Jobs that write into a model's repository, by which the depot recognizes their pods. Pure.

A TokenReview names the pod to which a service account token is bound. The name of a publisher's pod begins with the
name of its Job, which contains a digest of the model's UID.
"""

from __future__ import annotations

import hashlib
import re

from slipway.kube.values.names import with_ending

PUBLISH, UNPUBLISH = "publish", "unpublish"
PUBLICATION = "slipway.inference/publication"
"""Annotation of a model with JSON about its publication. The field ``attempt`` is the number of the Job."""
_POD_PREFIX = 58
"""Number of characters that Kubernetes keeps of a Job's name and a dash before it appends random characters."""
_RANDOM = re.compile(r"[a-z0-9]{5,10}")


def job_name(name: str, uid: str, what: str, attempt: int = 0) -> str:
    """Return the name of a Job that publishes or removes a model. ``name`` and ``uid`` are the model's, ``what`` is
    ``PUBLISH`` or ``UNPUBLISH``, and ``attempt`` is the number of the Job."""
    digest = hashlib.sha256(f"{uid}\0{what}\0{attempt}".encode()).hexdigest()[:10]
    return with_ending(name, f"-{what}-{digest}")


def is_pod_of(pod: str, job: str) -> bool:
    """Whether a pod's name has the form that Kubernetes gives the pods of the Job called ``job``."""
    prefix = f"{job}-"[:_POD_PREFIX]
    return pod.startswith(prefix) and _RANDOM.fullmatch(pod, len(prefix)) is not None
