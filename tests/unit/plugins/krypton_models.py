# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Models and statuses that the tests of the plugins use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fake_api import FakeApi, path_of

Object = dict[str, Any]

PATH = "/apis/krypton.ai/v1alpha1/namespaces/models/models/"
SPEC: Object = {"source": {"huggingface": "org/repo", "file": "weights.gguf"}}


def conditions(**states: tuple[str, str, str]) -> list[Object]:
    """``conditions(Available=("False", "Reason", "message"))``."""
    return [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, (status, reason, message) in states.items()
    ]


READY: Object = {
    "phase": "Ready",
    "url": "http://a.models.svc:8080/v1",
    "conditions": conditions(
        Accepted=("True", "Valid", "The spec is valid."),
        Available=("True", "Ready", "1 replica answers."),
        Progressing=("False", "Complete", "The replica runs the latest spec."),
    ),
}
PENDING: Object = {
    "phase": "Pending",
    "conditions": conditions(
        Accepted=("True", "Valid", "The spec is valid."),
        Available=("False", "WaitingForPods", "No replica answers yet."),
        Progressing=("True", "RollingOut", "Replicas of the newest spec are on their way."),
    ),
}
FAILED: Object = {
    "phase": "Failed",
    "conditions": conditions(
        Accepted=("True", "Valid", "The spec is valid."),
        Available=("False", "ImagePullBackOff", "The image nope:1 cannot be pulled."),
        Progressing=("False", "ImagePullBackOff", "See the condition Available."),
    ),
}


def becomes(**states: Object) -> Callable[[FakeApi, Object], None]:
    """A controller that at once gives each object the status under its name, or the one under ``others``."""

    def act(api: FakeApi, resource: Object) -> None:
        metadata = resource["metadata"]
        status = states.get(metadata["name"].replace("-", "_"), states.get("others"))
        if status is not None:
            api.set_status(path_of(resource), **status)

    return act
