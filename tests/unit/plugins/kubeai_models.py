# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""KubeAI's models and statuses that the tests of the plugins use."""

from __future__ import annotations

from typing import Any

from krypton_models import conditions

Object = dict[str, Any]

PATH = "/apis/kubeai.org/v1/namespaces/models/models/"
SPEC: Object = {"url": "hf://org/repo", "engine": "VLLM", "features": ["TextGeneration"], "minReplicas": 1}

ACCEPTED = ("True", "Valid", "The spec is valid.")
COMPLETE = ("False", "Complete", "All replicas run the latest spec.")
ON_THEIR_WAY = ("True", "RollingOut", "Replicas of the newest spec are on their way.")


def status(replicas: int = 1, **states: tuple[str, str, str]) -> Object:
    return {
        "replicas": {"all": replicas, "ready": replicas},
        "conditions": conditions(**{"Accepted": ACCEPTED, **states}),
    }


READY = status(Available=("True", "Ready", "1 replica answers."), Progressing=COMPLETE)
ASLEEP = status(0, Available=("False", "ScaledToZero", "The first request starts a replica."), Progressing=COMPLETE)
PENDING = status(Available=("False", "WaitingForPods", "No replica answers yet."), Progressing=ON_THEIR_WAY)
FAILED = status(
    Available=("False", "CrashLoopBackOff", "The engine ended with exit code 1."),
    Progressing=("False", "CrashLoopBackOff", "See the condition Available."),
)
CACHE_LOADING = status(
    0,
    CacheLoaded=("False", "LoadingCache", "1.2 of 4.8 GB."),
    Available=("False", "WaitingForPods", "No replica answers yet."),
    Progressing=("True", "LoadingCache", "The weights are being loaded."),
)
CACHE_FAILED = status(
    0,
    CacheLoaded=("False", "CacheLoadFailed", "The hub has no repository org/repo."),
    Available=("False", "WaitingForPods", "No replica answers yet."),
    Progressing=("True", "LoadingCache", "The weights are being loaded."),
)
