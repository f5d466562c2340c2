"""Publishers: the Jobs that write into a model's repository, and how the depot recognizes their pods. Pure.

A TokenReview names the pod to which a service account's token is bound. The name of a publisher's pod begins with that
of its Job, which contains a digest of the model's uid.
"""

from __future__ import annotations

import hashlib
import re

from slipway.kube.values.names import with_ending

PUBLISH, UNPUBLISH = "publish", "unpublish"
PUBLICATION = "slipway.inference/publication"
"""Annotation of a model: JSON about its publication, with the number of its Job as ``attempt``."""
_POD_PREFIX = 58
"""How many characters of a Job's name and a dash Kubernetes keeps at most before it appends random ones."""
_RANDOM = re.compile(r"[a-z0-9]{5,10}")


def job_name(name: str, uid: str, what: str, attempt: int = 0) -> str:
    """Returns the name of a model's Job. ``what``: PUBLISH or UNPUBLISH."""
    digest = hashlib.sha256(f"{uid}\0{what}\0{attempt}".encode()).hexdigest()[:10]
    return with_ending(name, f"-{what}-{digest}")


def is_pod_of(pod: str, job: str) -> bool:
    """Whether a pod's name has the form that Kubernetes gives the pods of this Job."""
    prefix = f"{job}-"[:_POD_PREFIX]
    return pod.startswith(prefix) and _RANDOM.fullmatch(pod, len(prefix)) is not None
