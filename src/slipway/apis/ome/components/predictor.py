"""Predictor: the deprecated field ``spec.predictor``, which combines the model, runtime and engine of a service.
Pure."""

from __future__ import annotations

from slipway.kube.objects import Object, as_object
from slipway.kube.schemas.merge import merged

RUNNER = "ome-container"
HINT = "ome"
"""Text in container names. If no container is named RUNNER, the first one whose name contains the text is the main
container, if any."""
NOT_OF_CONTAINERS = frozenset(
    ("baseModel", "runtime", "fineTunedWeights", "storageUri", "runtimeVersion", "protocolVersion")
)
"""Fields of a predictor's ``model`` that are not container fields."""


def used(resource: Object) -> bool:
    """Whether a service sets any field of its predictor."""
    spec = resource.get("spec")
    return isinstance(spec, dict) and bool(as_object(spec.get("predictor")))


def migrated(resource: Object) -> Object:
    """Return the service with its predictor converted to the fields ``engine``, ``model`` and ``runtime``. Those fields
    take precedence if the service also sets them. A service without a predictor is returned unchanged."""
    if not used(resource):
        return resource
    spec = {field: value for field, value in resource["spec"].items() if field != "predictor"}
    return {**resource, "spec": {**_parts(as_object(resource["spec"]["predictor"])), **spec}}


def _parts(predictor: Object) -> Object:
    model, worker = as_object(predictor.get("model")), as_object(predictor.get("workerSpec"))
    pod = {field: value for field, value in predictor.items() if field not in ("model", "workerSpec")}
    containers = [one for one in pod.pop("containers", None) or () if isinstance(one, dict)]
    runner = main(containers)
    rest = [one for one in containers if one is not runner]
    own = {field: value for field, value in model.items() if value and field not in NOT_OF_CONTAINERS}
    parts: Object = {"engine": pod | ({"containers": rest} if rest else {}) | ({"worker": worker} if worker else {})}
    if runner or own:
        parts["engine"]["runner"] = merged(runner or {"name": RUNNER}, own, "Container")
    if name := model.get("baseModel"):
        weights = model.get("fineTunedWeights")
        parts["model"] = {"name": name} | ({"fineTunedWeights": weights} if weights else {})
    if runtime := model.get("runtime"):
        parts["runtime"] = {"name": runtime}
    return parts


def main(containers: list[Object]) -> Object | None:
    """Return the container that receives requests, even if it is not named RUNNER. Return None if the list is empty."""
    named = [one for one in containers if one.get("name") == RUNNER]
    alike = [one for one in containers if HINT in str(one.get("name", ""))]
    return next(iter((*named, *alike, *containers)), None)
