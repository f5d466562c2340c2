"""Publishers: which pods may write to which repository, and when.

Only the Job that the controller created for a model may write, only to that model's repository, and only while the
model is being published or deleted.
"""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from slipway.decoding import DecodingError, decode_json
from slipway.depot.settings import Settings
from slipway.kube.api.client import Client
from slipway.kube.api.errors import NotFoundError
from slipway.kube.objects import Key, Object, annotations_of, deleting, key, uid
from slipway.serving.wire.publishers import PUBLICATION, PUBLISH, UNPUBLISH, is_pod_of, job_name
from slipway.serving.wire.repositories import LONGEST_NAME, repository

NO_RIGHTS: frozenset[str] = frozenset()
WRITE, REMOVE = frozenset({"pull", "push", "delete"}), frozenset({"pull", "delete"})
PUBLISHING = "Publishing"
"""Phase of a model whose Job may write."""
_RECORD_BYTES = 1 << 15
_SHORTENED = re.compile(r"-[0-9a-f]{8}\Z")
_REPOSITORY = re.compile(r"(?:namespaced/([^/]+)|cluster)/([^/]+)/([^/]+)")


class _Record(msgspec.Struct, frozen=True):
    attempt: Annotated[int, msgspec.Meta(ge=0)] = 0


class Place(msgspec.Struct, frozen=True):
    """The model to which a repository belongs, as parsed from the repository's name."""

    namespace: str
    """Namespace of the model; empty: the model is cluster-scoped."""
    name: str
    """Name of the model, shortened if it is long."""
    uid: str


def parse_repository(name: str) -> Place | None:
    """Return the model to which a repository name belongs, or None if no model can have such a repository."""
    matched = _REPOSITORY.fullmatch(name)
    return Place(matched[1] or "", matched[2], matched[3]) if matched else None


def rights(model: Object, pod: str) -> frozenset[str]:
    """Return the rights in the model's repository that the pod named ``pod`` has as the model's publisher. The pod must
    be in the namespace in which the model is published. No rights if the pod does not belong to the model's current
    Job."""
    name, status = key(model).name, model.get("status")
    if deleting(model):
        return REMOVE if is_pod_of(pod, job_name(name, uid(model), UNPUBLISH)) else NO_RIGHTS
    if not isinstance(status, dict) or status.get("phase") != PUBLISHING or _is_published(status):
        return NO_RIGHTS
    return WRITE if is_pod_of(pod, job_name(name, uid(model), PUBLISH, _attempt(model))) else NO_RIGHTS


def _is_published(status: Object) -> bool:
    artifact = status.get("artifact")
    return not isinstance(artifact, dict | None) or bool((artifact or {}).get("digest"))


def _attempt(model: Object) -> int:
    try:
        return decode_json(annotations_of(model).get(PUBLICATION, ""), _Record, most=_RECORD_BYTES).attempt
    except DecodingError:
        return 0


class Publishers:
    """A lookup of the rights of publishers when they request a token."""

    def __init__(self, settings: Settings, client: Client) -> None:
        self._settings, self._client = settings, client

    async def rights(self, namespace: str, pod: str, name: str) -> frozenset[str]:
        """Return the rights in the repository ``name`` that a pod has as the publisher of its model, or no rights.
        ``namespace`` is the pod's namespace. Raise ApiError."""
        place = parse_repository(name)
        if place is None or namespace != (place.namespace or self._settings.namespace):
            return NO_RIGHTS
        if f"-{PUBLISH}-" not in pod and f"-{UNPUBLISH}-" not in pod:  # needs no request
            return NO_RIGHTS
        model = await self._model(place, name)
        return rights(model, pod) if model else NO_RIGHTS

    async def _model(self, place: Place, name: str) -> Object | None:
        kind = self._settings.models if place.namespace else self._settings.cluster_models
        models: list[Object] = []
        try:
            models = [await self._client.get(kind, Key(place.namespace, place.name))]
        except NotFoundError:
            if not _SHORTENED.search(place.name):
                return None
            async for page in self._client.pages(kind, namespace=place.namespace):
                models += [one for one in page.items if len(key(one).name) > LONGEST_NAME]
        return next((one for one in models if repository(*key(one), uid(one)) == name), None)
