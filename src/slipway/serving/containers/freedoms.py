"""Fields of a workload, a Service or a ScaledObject that require the operator's trust, detected in finished objects.
Pure.

A freedom is such a field with its value. The rules are those of the Baseline and Restricted Pod Security Standards that
protect the node, plus a few for accounts, images, priorities and labels, which the standards do not cover. This module
only detects freedoms; :mod:`slipway.serving.contract.authors` decides whether they are allowed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, Literal

import msgspec

from slipway.kube.objects import SCALED_OBJECT, SERVICE, Object

HARMLESS_CAPABILITIES = frozenset({"NET_BIND_SERVICE"})
SAFE_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
CONFINED_TYPES = frozenset({None, "", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
"""SELinux types that give a container no additional permissions."""
PLAIN_VOLUMES = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"}
)
"""Volume types that the Restricted standard allows, except inline CSI volumes, whose access depends on the driver."""
IDENTITIES = frozenset({"serviceAccountToken", "podCertificate"})
"""Sources of a projected volume that let a container act as its ServiceAccount."""
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"

CLUSTER_CREDENTIALS = "ClusterTriggerAuthentication"
"""Kind of the KEDA credentials that every namespace can refer to."""

Setting = Literal[
    "service_accounts",
    "image_prefixes",
    "privileged",
    "any_volume",
    "node_ports",
    "priority_classes",
    "prometheus_servers",
    "trigger_authentications",
    "host_path",
    "",
]
"""The setting that may allow a freedom: a field of ``authors``, or ``host_path`` for ``sources.allowedHostPathRoots``.
The value is empty if no setting can allow the freedom."""


class Labels(msgspec.Struct, frozen=True):
    """Pod labels that Services select by, as names and prefixes of names."""

    names: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()
    but: frozenset[str] = frozenset()
    """Names that are excluded even if ``names`` or ``prefixes`` match."""

    def __contains__(self, name: object) -> bool:
        return name not in self.but and (name in self.names or str(name).startswith(self.prefixes))


NO_LABELS = Labels()


class Freedom(msgspec.Struct, frozen=True):
    """A field of a child object that requires the operator's trust."""

    setting: Setting
    child: str
    """The child's kind and name, such as ``Deployment chat``."""
    field: str
    """Path of the field in the pod template, the Service or the ScaledObject, such as
    ``spec.containers[vllm].securityContext.privileged``."""
    value: str
    """The field's value as text, or ``not set`` if the absence of the field requires trust. The value is empty if the
    path is sufficient."""


class Row(msgspec.Struct, frozen=True):
    """A rule about one field of a pod, a container or a Service."""

    setting: Setting
    path: tuple[str, ...]
    needs_trust: Callable[[Any], bool]
    """Whether a value of the field requires trust. The argument is None if the field is absent."""


class Rules(msgspec.Struct, frozen=True):
    """Rows grouped by the fields on their path, so that only the existing fields of an object are examined."""

    fields: tuple[tuple[str, Row, bool], ...]
    """Name, row and flag for each row about a direct field of the object. The flag is true if an absent field also
    requires trust."""
    below: tuple[tuple[str, Rules], ...]
    required: tuple[Row, ...]
    """Rows at or below this level that an absent object violates."""


def rules_of(rows: Iterable[Row], depth: int = 0) -> Rules:
    """Group rows by the field at ``depth`` of their paths. All paths must have the same first ``depth`` fields and at
    least one field more."""
    rows = tuple(rows)
    fields = tuple((row.path[depth], row, row.needs_trust(None)) for row in rows if len(row.path) == depth + 1)
    further = [row for row in rows if len(row.path) > depth + 1]
    below = tuple(
        (name, rules_of([row for row in further if row.path[depth] == name], depth + 1))
        for name in dict.fromkeys(row.path[depth] for row in further)
    )
    return Rules(fields, below, tuple(row for row in rows if row.needs_trust(None)))


def _is(*values: str) -> Callable[[Any], bool]:
    return lambda value: value in values


def _unconfined(options: Any) -> bool:
    profile = options or {}
    return bool(profile.get("user") or profile.get("role") or profile.get("type") not in CONFINED_TYPES)


def _unsafe(sysctls: Any) -> bool:
    return any(one.get("name") not in SAFE_SYSCTLS for one in sysctls or ())


IN_BOTH = (
    Row("privileged", ("securityContext", "runAsUser"), lambda user: user == 0),
    Row("privileged", ("securityContext", "seccompProfile", "type"), _is("Unconfined")),
    Row("privileged", ("securityContext", "appArmorProfile", "type"), _is("Unconfined")),
    Row("privileged", ("securityContext", "seLinuxOptions"), _unconfined),
    Row("privileged", ("securityContext", "windowsOptions", "hostProcess"), bool),
)
IN_PODS = (
    *IN_BOTH,
    Row("privileged", ("hostNetwork",), bool),
    Row("privileged", ("hostPID",), bool),
    Row("privileged", ("hostIPC",), bool),
    Row("privileged", ("securityContext", "sysctls"), _unsafe),
    Row("service_accounts", ("serviceAccountName",), bool),
    Row("service_accounts", ("serviceAccount",), bool),
    Row("priority_classes", ("priorityClassName",), bool),
)
KUBELET_HANDLERS = (
    *product(("startupProbe", "readinessProbe", "livenessProbe"), ("httpGet", "tcpSocket")),
    *product(("lifecycle",), ("postStart", "preStop"), ("httpGet", "tcpSocket")),
)
"""Paths of the handlers that make the kubelet send requests from the node's own network."""
IN_CONTAINERS = (
    *IN_BOTH,
    *(Row("privileged", (*place, "host"), bool) for place in KUBELET_HANDLERS),
    Row("privileged", ("securityContext", "privileged"), bool),
    # Absent means true to Kubernetes.
    Row("privileged", ("securityContext", "allowPrivilegeEscalation"), lambda allowed: allowed is not False),
    Row(
        "privileged",
        ("securityContext", "capabilities", "add"),
        lambda had: bool({*(had or ())} - HARMLESS_CAPABILITIES),
    ),
    Row("privileged", ("securityContext", "procMount"), _is("Unmasked")),
    Row("privileged", ("ports",), lambda ports: any(port.get("hostPort") for port in ports or ())),
    Row("image_prefixes", ("image",), bool),
)
IN_SERVICES = (Row("node_ports", ("type",), _is("NodePort", "LoadBalancer")),)
"""Rules for Services. The types NodePort and LoadBalancer open ports on the nodes and bypass the gateway."""
POD_RULES, CONTAINER_RULES, SERVICE_RULES = map(rules_of, (IN_PODS, IN_CONTAINERS, IN_SERVICES))


def freedoms(children: Iterable[Object], reserved: Labels = NO_LABELS) -> frozenset[Freedom]:
    """Return every field of ``children`` that requires trust, regardless of who set it. ``reserved`` contains the
    labels that pods must not have."""
    return frozenset(one for child in children for one in _of(child, reserved))


def _of(manifest: Object, reserved: Labels) -> Iterable[Freedom]:
    child, spec = f"{manifest['kind']} {manifest['metadata']['name']}", manifest.get("spec") or {}
    if manifest["kind"] == SERVICE.kind:
        yield from _matching(SERVICE_RULES, spec, child, "spec")
    if manifest["kind"] == SCALED_OBJECT.kind:
        yield from _of_triggers(spec.get("triggers") or (), child)
    for place, template in templates(manifest):
        yield from _of_template(place, template, child, reserved)


def templates(workload: Object) -> tuple[tuple[str, Object], ...]:
    """Return the pod templates of a workload, each with the prefix of its path. A LeaderWorkerSet has one template for
    its leader and one for its workers. The result is empty for objects without a template."""
    spec = workload.get("spec") or {}
    group = spec.get("leaderWorkerTemplate") or {}
    pairs = (
        ("", spec.get("template")),
        *((f"{name}.", group.get(name)) for name in ("leaderTemplate", "workerTemplate")),
    )
    return tuple((place, template) for place, template in pairs if template)


def _of_template(place: str, template: Mapping[str, Any], child: str, reserved: Labels) -> Iterable[Freedom]:
    pod = template.get("spec")
    if pod is None:
        return
    yield from _matching(POD_RULES, pod, child, f"{place}spec")
    for part in ("initContainers", "containers"):
        for container in pod.get(part) or ():
            yield from _matching(CONTAINER_RULES, container, child, f"{place}spec.{part}[{container.get('name')}]")
    yield from _of_volumes(pod, child, place)
    yield from _of_metadata(template.get("metadata") or {}, child, place, reserved)


def _matching(rules: Rules, value: Object, child: str, place: str) -> Iterable[Freedom]:
    return [
        Freedom(row.setting, child, f"{place}.{'.'.join(row.path)}", _text(actual))
        for row, actual in _find_violations(rules, value)
    ]


def _find_violations(rules: Rules, value: Any) -> list[tuple[Row, Any]]:
    """Return the rows that an object violates, each with the offending value or None if the field is absent."""
    if not isinstance(value, dict | Mapping):
        return [(row, None) for row in rules.required]
    broken = []
    for name, row, required in rules.fields:
        actual = value.get(name)
        if (actual is not None or required) and row.needs_trust(actual):
            broken.append((row, actual))
    for name, further in rules.below:
        actual = value.get(name)
        if actual is not None or further.required:
            broken += _find_violations(further, actual)
    return broken


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "not set" if value is None else json.dumps(value)


def _of_volumes(pod: Object, child: str, within: str) -> Iterable[Freedom]:
    for volume in pod.get("volumes") or ():
        for kind, source in volume.items():
            place = f"{within}spec.volumes[{volume.get('name')}].{kind}"
            fields = source if isinstance(source, Mapping) else {}
            if kind == "image":
                yield Freedom("image_prefixes", child, place, str(fields.get("reference", "")))
            elif kind == "projected":
                sources = {name for one in fields.get("sources") or () for name in one}
                yield from (Freedom("any_volume", child, f"{place}.{name}", "") for name in sources & IDENTITIES)
            elif kind == "hostPath" and _read_only(pod, volume.get("name")):
                yield Freedom("host_path", child, place, str(fields.get("path", "")))
            elif kind == "hostPath":
                yield Freedom("", child, place, f"{fields.get('path')}, writable")
            elif kind != "name" and kind not in PLAIN_VOLUMES:
                yield Freedom("any_volume", child, place, "")


def _read_only(pod: Object, volume: Any) -> bool:
    """Whether no container may write to the volume with the name ``volume``."""
    containers = [*(pod.get("initContainers") or ()), *(pod.get("containers") or ())]
    mounts = [mount for one in containers for mount in one.get("volumeMounts") or () if mount.get("name") == volume]
    return all(mount.get("readOnly") for mount in mounts)


def _of_triggers(triggers: Iterable[Object], child: str) -> Iterable[Freedom]:
    """Yield the freedoms of KEDA triggers. KEDA sends requests from its own namespace and reads cluster-wide
    credentials. Authors can do neither."""
    for number, trigger in enumerate(triggers):
        place, reference = f"spec.triggers[{number}]", trigger.get("authenticationRef") or {}
        server = (trigger.get("metadata") or {}).get("serverAddress")
        if server is not None:
            yield Freedom("prometheus_servers", child, f"{place}.metadata.serverAddress", server)
        if reference.get("kind") == CLUSTER_CREDENTIALS:
            yield Freedom("trigger_authentications", child, f"{place}.authenticationRef", str(reference.get("name")))


def _of_metadata(metadata: Object, child: str, place: str, reserved: Labels) -> Iterable[Freedom]:
    for name, value in (metadata.get("labels") or {}).items():
        if name in reserved:
            yield Freedom("", child, f"{place}metadata.labels[{name}]", str(value))
    for name, value in (metadata.get("annotations") or {}).items():
        if name.startswith(APPARMOR) and value == "unconfined":
            yield Freedom("privileged", child, f"{place}metadata.annotations[{name}]", value)
