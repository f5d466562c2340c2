"""Builders that turn a ModelServer, its Scale and its ServiceSpecs into a Deployment, Services, a ConfigMap and a
ServiceAccount. Pure.

Slipway owns every field that these builders set. Fields of other owners stay, because the applier sends the objects
with server-side apply.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence

import msgspec

from slipway.kube.objects import (
    CONFIG_MAP,
    DEPLOYMENT,
    MANAGED_BY,
    SERVICE,
    SERVICE_ACCOUNT,
    Kind,
    Object,
    annotations_of,
)
from slipway.kube.values.jsonpatch import PatchError, patched
from slipway.serving.containers import volumes
from slipway.serving.containers.devices import with_groups
from slipway.serving.containers.diagnosis import TEMPLATE, template_digest
from slipway.serving.containers.drain import bounded
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.pods.server import Container, File, ModelServer, Mount, Probe, Scale, ServiceSpec
from slipway.serving.routing.route import route_metadata

MANAGER = "slipway"
"""Value of the label ``app.kubernetes.io/managed-by`` on all children. Pods have it unless an API sets another
value."""
PORT_NAME = "http"
FILES_VOLUME = "model-files"
ROLLOUT_MARGIN_SECONDS = 60
"""Seconds added to the startup limit, so that no rollout counts as failed while a container may still be starting."""
UNPRIVILEGED: Object = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
"""Security context of a container that meets the Restricted Pod Security Standard."""
CONFINED: Object = {"seccompProfile": {"type": "RuntimeDefault"}}
"""Security context with the pod's seccomp profile, unless the spec or the operator sets another. Without a profile, a
container may use every system call of the kernel."""
FILE_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")


def restricted(user: int | None) -> Object:
    """Return a pod's security context that meets the Restricted Pod Security Standard. ``user`` is the user and group
    ID, or None if the cluster assigns them."""
    ids = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    return {"runAsNonRoot": True, **ids, **CONFINED}


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """The Kubernetes objects that serve one model."""

    accounts: tuple[Object, ...] = ()
    services: tuple[Object, ...] = ()
    files: tuple[Object, ...] = ()
    """A ConfigMap with the engine's files. The value is empty if the engine has no files."""
    deployment: Object

    @property
    def dependencies(self) -> tuple[Object, ...]:
        """All objects except the Deployment, which needs them."""
        return (*self.accounts, *self.services, *self.files)

    @property
    def children(self) -> tuple[Object, ...]:
        """All objects, with the Deployment's dependencies first."""
        return (*self.dependencies, self.deployment)


def workload(server: ModelServer, scale: Scale, addresses: Sequence[ServiceSpec]) -> Workload:
    """Build the objects that serve one model. Raise InvalidSpecError if the server's patches cannot be applied."""
    return Workload(
        accounts=(service_account(server),) if server.own_account and not server.service_account else (),
        services=tuple(service(server, address) for address in addresses),
        files=(config_map(server),) if server.files else (),
        deployment=deployment(server, scale),
    )


def child(kind: Kind, name: str, namespace: str, labels: Mapping[str, str], **fields: Object | bool) -> Object:
    metadata = {"name": name, "namespace": namespace, "labels": dict(labels)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **fields}


def service_account(server: ModelServer) -> Object:
    """Build a ServiceAccount without permissions. Its token is not mounted in the engine."""
    return child(SERVICE_ACCOUNT, server.name, server.namespace, server.labels, automountServiceAccountToken=False)


def service(server: ModelServer, address: ServiceSpec) -> Object:
    """Build a Service for the server's pods. Its route makes the gateway serve the model."""
    whole = address if address.port else msgspec.structs.replace(address, port=server.port)
    return service_of(server.namespace, server.labels, whole)


def service_of(namespace: str, labels: Mapping[str, str], address: ServiceSpec) -> Object:
    """Build a Service with a route for the pods of any workload. ``address.port`` must not be 0."""
    port = {"name": PORT_NAME, "port": address.port, "targetPort": PORT_NAME, "protocol": "TCP"}
    if address.node_port is not None:
        port["nodePort"] = address.node_port
    spec = {"type": address.type, "selector": dict(address.selector), "ports": [port]}
    manifest = child(SERVICE, address.name, namespace, labels, spec=spec)
    labels, annotations = route_metadata(address.route)
    manifest["metadata"]["labels"] |= labels
    manifest["metadata"]["annotations"] = dict(annotations)
    return manifest


def config_map(server: ModelServer) -> Object:
    """Build a ConfigMap with the server's files, for its pods to mount."""
    data = {key: file.content for key, file in file_keys(server.files).items()}
    return child(CONFIG_MAP, files_name(server), server.namespace, server.labels, data=data)


def files_name(server: ModelServer) -> str:
    return f"{server.name}-files"


def file_keys(files: Sequence[File]) -> dict[str, File]:
    """Return the server's files by ConfigMap key. A key is the path with ``_`` for ``/``. If that key is invalid or
    already used, it is a digest of the path."""
    keys: dict[str, File] = {}
    for file in files:
        plain = file.path.replace("/", "_")
        usable = FILE_KEY.fullmatch(plain) and plain not in keys
        keys[plain if usable else f"file-{digest(file.path)}"] = file
    return keys


def deployment(server: ModelServer, scale: Scale) -> Object:
    """Build the Deployment of a ModelServer. Raise InvalidSpecError if the server's patches cannot be applied."""
    rollout = Rollout(
        name=server.name,
        namespace=server.namespace,
        labels=server.labels,
        selector=server.selector,
        scale=scale,
        startup_seconds=server.startup_seconds,
    )
    return deployment_of(pod_template(server), rollout)


def pod_template(server: ModelServer) -> Object:
    """Build the pod template of a ModelServer. Raise InvalidSpecError if the server's patches cannot be applied."""
    labels = {**server.labels, **server.selector} | {MANAGED_BY: MANAGER} | dict(server.pod_labels)
    pod = _patched(
        server, {"metadata": {"labels": labels, "annotations": dict(server.pod_annotations)}, "spec": _pod(server)}
    )
    pod["metadata"].setdefault("annotations", {})[TEMPLATE] = digest(_revision_input(server, pod["spec"]))
    return pod


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a Deployment without its pod template."""

    name: str
    namespace: str
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    scale: Scale
    startup_seconds: int
    """Seconds that a pod may take to start."""


def deployment_of(template: Object, rollout: Rollout) -> Object:
    """Build a Deployment from a finished pod template.

    The result's template also has the selector's labels, our label unless another value is set, and a digest that
    distinguishes the new pods from those of an older spec.
    """
    spec = {
        **({} if rollout.scale.replicas is None else {"replicas": rollout.scale.replicas}),
        "selector": {"matchLabels": dict(rollout.selector)},
        "revisionHistoryLimit": rollout.scale.revision_history_limit,
        "progressDeadlineSeconds": rollout.startup_seconds + ROLLOUT_MARGIN_SECONDS,
        "template": _marked(with_selector_labels(template, rollout.selector)),
    }
    if rollout.scale.recreate:
        spec["strategy"] = {"type": "Recreate"}
    elif rollout.scale.surge is not None:
        spec["strategy"] = {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": rollout.scale.surge, "maxUnavailable": 0 if rollout.scale.surge else 1},
        }
    return child(DEPLOYMENT, rollout.name, rollout.namespace, rollout.labels, spec=spec)


def with_selector_labels(template: Object, selector: Mapping[str, str]) -> Object:
    """Return the pod template with the selector's labels added, and with our ``managed-by`` label unless it has another
    value."""
    metadata = template.get("metadata") or {}
    labels = {MANAGED_BY: MANAGER, **(metadata.get("labels") or {}), **selector}
    return template if labels == metadata.get("labels") else {**template, "metadata": {**metadata, "labels": labels}}


def _marked(template: Object) -> Object:
    """Return the pod template with a digest that distinguishes its pods from those of an older spec. A template that
    already has a digest stays unchanged."""
    annotations = annotations_of(template)
    if TEMPLATE in annotations:
        return template
    marked = {TEMPLATE: digest(template["spec"]), **annotations}
    return {**template, "metadata": {**template["metadata"], "annotations": marked}}


def _revision_input(server: ModelServer, spec: Object) -> Object | list[Object]:
    """Return everything whose change must replace the pods: their spec, the mounted files, and the patches of their
    labels and annotations."""
    files = {file.path: file.content for file in server.files}
    patches = (*server.own_patches, *server.patches)
    marks = [patch for patch in patches if str(patch.get("path", "")).startswith("/metadata")]
    return [spec, files, *marks] if files or marks else spec


def with_labels_of(desired: Object, observed: Object | None) -> Object:
    """Return ``desired`` with the observed pod labels and annotations if the pods' spec and files are unchanged, and
    ``desired`` itself otherwise.

    A changed label alone does not replace pods. It takes effect together with the next change that does.
    """
    old, new = ((item or {}).get("spec", {}).get("template", {}) for item in (observed, desired))
    if template_digest(old) != template_digest(new):
        return desired
    return {
        **desired,
        "spec": {
            **desired["spec"],
            "template": {
                **new,
                "metadata": {
                    field: old["metadata"][field] for field in ("labels", "annotations") if field in old["metadata"]
                },
            },
        },
    }


def keep_deployment(observed: Object, replicas: int | None) -> Object:
    """Return a manifest that keeps a Deployment as observed, with ``replicas`` (see Scale). The Deployment continues to
    serve until its successor can be created."""
    metadata = {field: observed["metadata"][field] for field in ("name", "namespace", "labels")}
    spec = {**observed["spec"], "replicas": replicas}
    if replicas is None:
        del spec["replicas"]
    return {"apiVersion": DEPLOYMENT.api_version, "kind": DEPLOYMENT.kind, "metadata": metadata, "spec": spec}


def digest(value: object) -> str:
    return hashlib.blake2b(msgspec.json.encode(value, order="deterministic"), digest_size=6).hexdigest()


def _patched(server: ModelServer, pod: Object) -> Object:
    """Return the pod after the author's and then the operator's patches. Raise InvalidSpecError if a patch cannot be
    applied or removes the spec or a selector label."""
    patched_pod = _apply_patches(server, pod, server.own_patches, "InvalidSpec", "spec.jsonPatches")
    return _apply_patches(server, patched_pod, server.patches, "InvalidConfig", server.patches_field)


def _apply_patches(server: ModelServer, pod: Object, patches: Sequence[Object], reason: str, field: str) -> Object:
    if not patches:
        return pod
    try:
        whole = patched({"apiVersion": "v1", "kind": "Pod", **pod}, patches)
    except PatchError as error:
        raise InvalidSpecError(reason, f"{field} cannot be applied to the pod: {error}") from error
    metadata, spec = (whole.get(part) if isinstance(whole, dict) else None for part in ("metadata", "spec"))
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    if not isinstance(spec, dict) or not isinstance(labels, dict) or not server.selector.items() <= labels.items():
        selector = ", ".join(f"{name}={value}" for name, value in server.selector.items())
        raise InvalidSpecError(reason, f"{field} must keep the pod's spec and the labels {selector}")
    return {"metadata": metadata, "spec": spec}


def _pod(server: ModelServer) -> Object:
    engine = container_spec(server.engine, [*server.engine.mounts, *_file_mounts(server)], _answering(server))
    pod_volumes = [*server.volumes]
    if server.files:
        pod_volumes.append(volumes.config_map(FILES_VOLUME, files_name(server)))
    account = server.service_account or (server.name if server.own_account else "")
    optional: Object = {
        "serviceAccountName": account,
        "securityContext": server.security,
        "terminationGracePeriodSeconds": server.drain.grace_seconds,
        "initContainers": [container_spec(one, one.mounts) for one in server.init_containers],
        "containers": [engine, *(container_spec(one, one.mounts, _readiness_probe(one)) for one in server.sidecars)],
        "volumes": pod_volumes,
    }
    spec = {field: value for field, value in optional.items() if value}
    # These are variables for every Service of the namespace: thousands with many models, and an engine reads some of
    # them as its own settings (VLLM_PORT of a Service called vllm).
    spec["enableServiceLinks"] = False
    if not server.service_account:
        spec["automountServiceAccountToken"] = False
    if server.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in server.image_pull_secrets]
    return with_groups(
        spec | {field: value for field, value in server.scheduling.items() if value}, server.device_groups
    )


def _file_mounts(server: ModelServer) -> list[Mount]:
    return [Mount(FILES_VOLUME, file.path, key, read_only=True) for key, file in file_keys(server.files).items()]


def _answering(server: ModelServer) -> Object:
    """Return the additional fields of a container that serves requests: its port, probes and drain hook."""
    probes, hook = server.probes, server.drain.hook(server.port)
    defaults = {
        "startupProbe": _probe(probes.startup),
        "readinessProbe": _probe(probes.readiness),
        "livenessProbe": _probe(probes.liveness),
    }
    return {
        "ports": [{"name": PORT_NAME, "containerPort": server.port, "protocol": "TCP"}],
        **bounded(defaults | dict(server.probe_overrides)),
        **({"lifecycle": {"preStop": hook}} if hook else {}),
    }


def _readiness_probe(beside: Container) -> Object:
    return {"readinessProbe": _probe(beside.readiness)} if beside.readiness else {}


def _probe(probe: Probe) -> Object:
    place: Object = {"port": probe.port or PORT_NAME}
    handler: Object = {"exec": {"command": [*probe.command]}} if probe.command else {"tcpSocket": place}
    if probe.path:
        handler = {"httpGet": {"path": probe.path, **place}}
    delay = {"initialDelaySeconds": probe.initial_delay} if probe.initial_delay else {}
    times = {"periodSeconds": probe.period, "timeoutSeconds": probe.timeout, "failureThreshold": probe.failures}
    return handler | delay | times


def container_spec(container: Container, mounts: Sequence[Mount], answering: Object | None = None) -> Object:
    spec: Object = {
        "name": container.name,
        "image": container.image,
        "imagePullPolicy": container.image_pull_policy,
        "command": list(container.command),
        "args": list(container.args),
        **(answering or {}),
        "securityContext": container.security,
        # Copies the last log lines of a failed container into the pod's status, for the diagnosis.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*(_mount(mount) for mount in mounts), *container.further_mounts],
        "env": list(container.env),
        "envFrom": list(container.env_from),
        "resources": container.resources,
    }
    return {field: value for field, value in spec.items() if value}


def _mount(mount: Mount) -> Object:
    optional = {"subPath": mount.sub_path, "readOnly": mount.read_only}
    return {"name": mount.volume, "mountPath": mount.path} | {
        field: value for field, value in optional.items() if value
    }
