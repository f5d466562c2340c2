"""Jobs: the loader's tasks for a model, on nodes and on claims. Pure."""

from __future__ import annotations

import hashlib
from typing import Literal

import msgspec

from slipway.apis.ome import names
from slipway.apis.ome.models.resolve import ModelView
from slipway.apis.ome.models.storage import Stored
from slipway.apis.ome.settings import ome
from slipway.artifacts.locations import huggingface
from slipway.kube.objects import JOB, MANAGED_BY, Key, Object, deleting, key, uid
from slipway.kube.values.names import label_value
from slipway.serving.containers import volumes
from slipway.serving.pods.server import Container, variables
from slipway.serving.pods.workload import CONFINED, MANAGER, UNPRIVILEGED, restricted
from slipway.serving.wire import agent
from slipway.weights import nodes
from slipway.weights.jobs import loads as jobs
from slipway.weights.jobs.loads import (
    ANSWER_SECONDS,
    EVERYWHERE,
    INSTANCE_LABEL,
    LOAD_SECONDS,
    NAME_LABEL,
    Run,
    Runner,
    arguments_of,
)
from slipway.weights.nodes import Node
from slipway.weights.sources.credentials import (
    S3_KEYS,
    Access,
    from_google,
    from_secret,
    hub_mirror,
    mounted,
    of_operator,
)

OWN_LABELS = frozenset({NAME_LABEL, INSTANCE_LABEL, names.MODEL_LABEL, MANAGED_BY})
VOLUME, DONOR, PARENT = "models", "donor", "parent"
REUSE, SEAL_KNOWN = "--reuse=", "--known"
DEADLINES = {"load": LOAD_SECONDS, "evict": 0, "inspect": ANSWER_SECONDS}
"""Task -> seconds after which its Job fails. 0 means no limit."""
CLAIM_FOLDER = "/mnt/claim"
"""Mount path of the claim in the loader."""
BUCKET_KEYS = (*S3_KEYS, "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_ENDPOINT_URL")
TOKEN_KEY, GOOGLE_KEY = "token", "credentials.json"


class LoaderTask(msgspec.Struct, frozen=True, kw_only=True):
    """A loader task for a model. The Job for a task is only built if it is needed, because there may be thousands of
    nodes."""

    what: Literal["load", "evict", "inspect"]
    arguments: tuple[str, ...]
    access: Access
    place: tuple[str, ...] = ()
    """Parts of the Job name that distinguish the task from other tasks of the model, such as the node's uid."""
    node: str = ""
    replaces: bool = False
    """Whether the load replaces the directory by a new one, because the existing one may belong to another
    namespace."""

    def on_node(self, node: Node) -> LoaderTask:
        """Return the task for a node. Each boot of the node leads to a new task with a new Job name."""
        return msgspec.structs.replace(self, place=(node.uid, node.boot), node=node.name)

    def with_seal(self, seal: str, donor: str, replaces: bool) -> LoaderTask:
        """Return the task with the directory's seal, and with ``donor``, another directory of the node that may have
        the same files. ``replaces``: whether the load replaces the directory by a new one. ``seal`` and ``donor`` may
        be empty."""
        arguments = (*self.arguments, *((f"--seal={seal}",) if seal else ()), *((f"{REUSE}{donor}",) if donor else ()))
        access = self.access + _folder(donor, volume=DONOR, read_only=True) if donor else self.access
        if replaces:  # only the container that replaces the directory mounts its parent: see _owner
            access += Access(volumes=_mount_parent(self.arguments[2]).volumes)
        return msgspec.structs.replace(self, arguments=arguments, access=access, replaces=replaces)


def load_task(view: ModelView, stored: Stored) -> LoaderTask:
    """Return the task that loads the files onto a node, or inspects files that the node already has if the model has no
    URL."""
    folder = _folder(stored.path, read_only=not stored.url)
    if not stored.url:
        return LoaderTask(what="load", arguments=("inspect", stored.path, *_header(view)), access=folder)
    options = [f"--file={one}" for one in stored.files] + ([f"--as={stored.stored_as}"] if stored.stored_as else [])
    options.append(f"--owner={uid(view.resource)}")
    arguments = ("stage", stored.url, stored.path, *options, *_header(view), *_guard(view, stored))
    return LoaderTask(what="load", arguments=arguments, access=folder + _source(view, stored))


def eviction_task(node: Node, path: str, root: str) -> LoaderTask:
    """Return the task that empties a directory of a node, below the operator's directory ``root``. The directory itself
    stays, because the Job's pod mounts nothing else."""
    arguments = ("evict", path, f"--below={root}")
    return LoaderTask(what="evict", arguments=arguments, access=_folder(path), place=(node.uid, path), node=node.name)


def inspection_task(view: ModelView, stored: Stored) -> LoaderTask | None:
    """Return the task that inspects files in place on a claim, or None if the files are not on a claim."""
    if stored.claim is None:
        return None
    claim = mounted(volumes.claim(VOLUME, stored.claim.name, read_only=True), CLAIM_FOLDER, read_only=True)
    place = f"{CLAIM_FOLDER}/{stored.sub_path}".rstrip("/")
    return LoaderTask(
        what="inspect", arguments=("inspect", place, *_header(view)), access=claim, place=(stored.claim.name,)
    )


def is_bound(view: ModelView, stored: Stored) -> bool:
    claim = view.world.get(stored.claim) if stored.claim else None
    return claim is not None and not deleting(claim) and claim.get("status", {}).get("phase") == "Bound"


def build_job(view: ModelView, loader_task: LoaderTask) -> Object:
    """Build the Job that runs the loader for a task."""
    runner, name = _runner(view, loader_task), name_of(view, loader_task)
    container = jobs.container(
        runner,
        loader_task.arguments,
        loader_task.access,
        name="evictor" if loader_task.what == "evict" else agent.CONTAINER,
    )
    return jobs.task(
        runner,
        name.name,
        name.namespace,
        container,
        loader_task.access.volumes,
        tolerations=(EVERYWHERE,) if loader_task.node else (),
        affinity=nodes.pinned(loader_task.node) if loader_task.node else {},
        init=_owner(view, runner, loader_task),
        deadline_seconds=DEADLINES[loader_task.what],
    )


def observe_job(view: ModelView, loader_task: LoaderTask) -> Run:
    """Return the state of the task's Job, which may not exist."""
    return jobs.observe_run(view.world, name_of(view, loader_task), ("loader", *loader_task.arguments))


def donor_of(view: ModelView, loader_task: LoaderTask) -> str | None:
    """Return the donor directory in the arguments of the task's existing Job. Return an empty string if the Job reuses
    no files, and None if there is no Job. Authors may forge Jobs, so callers must check the path."""
    job = _find_job(view, loader_task)
    return None if job is None else next((_rest(one) for one in arguments_of(job) if one.startswith(REUSE)), "")


def job_replaces_folder(view: ModelView, loader_task: LoaderTask) -> bool | None:
    """Whether the task's existing Job replaces its directory by a new one. None if there is no Job for the files and
    the directory of the task."""
    job = _find_job(view, loader_task)
    if job is None or arguments_of(job)[1:4] != list(loader_task.arguments[:3]):
        return None
    volumes_ = job["spec"]["template"]["spec"].get("volumes") or ()
    return any(one.get("name") == PARENT for one in volumes_)


def _find_job(view: ModelView, loader_task: LoaderTask) -> Object | None:
    job = view.world.children.get((JOB, name_of(view, loader_task)))
    return None if job is None or deleting(job) else job


def _rest(word: str) -> str:
    return word.removeprefix(REUSE)


def name_of(view: ModelView, loader_task: LoaderTask) -> Key:
    """Return the namespace and name of the task's Job. A Job that mounts a node directory runs in the operator's
    namespace. A Job that reads a claim runs in the claim's namespace."""
    namespace, name = key(view.resource)
    identity = "\0".join((uid(view.resource), loader_task.what, *loader_task.place))
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    beginning = f"{name[:34].rstrip('-.')}-{loader_task.what}-{digest}"
    return Key((not loader_task.node and namespace) or view.job_namespace, beginning)


def _owner(view: ModelView, runner: Runner, loader_task: LoaderTask) -> tuple[Container, ...]:
    """Return the init container that gives a directory to the loader's user, or an empty tuple if none is needed, or
    the cluster assigns users. The change of owner is needed because the kubelet creates the directory as root, and
    versions before 0.5 filled it as root. The container also assigns the directory to the model's namespace. To replace
    a directory, it mounts the parent and creates a new directory, which no container of another namespace can have
    mounted. The container reads nothing from a source."""
    user = view.world.settings.user(ome(view.world.settings).run_as_user)
    if user is None or not loader_task.node or loader_task.arguments[0] not in ("stage", "evict"):
        return ()
    path, options = loader_task.arguments[1], [f"--user={user}"] if user else []
    mine, powers = Access(mounts=loader_task.access.mounts[:1]), ["CHOWN"]
    if loader_task.arguments[0] == "stage":
        path = loader_task.arguments[2]
        options += [f"--namespace={key(view.resource).namespace}", *([] if loader_task.replaces else [SEAL_KNOWN])]
        mine = Access(mounts=_mount_parent(path).mounts) if loader_task.replaces else mine
        powers.append("DAC_OVERRIDE")  # the directory may already belong to the user
    if not options:
        return ()
    root = {"runAsUser": 0, "runAsGroup": 0, "runAsNonRoot": False}
    security = {**root, **UNPRIVILEGED, "capabilities": {"drop": ["ALL"], "add": powers}}
    as_root = msgspec.structs.replace(runner, security=security)
    return (jobs.container(as_root, ("own", path, *options), mine, name="owner"),)


def may_replace_folders(view: ModelView) -> bool:
    """Whether loads may replace directories. Cluster-scoped models do not need that, because their files may be read in
    all namespaces. On clusters that assign users to pods, no container can do it."""
    settings = view.world.settings
    return bool(key(view.resource).namespace) and settings.user(ome(settings).run_as_user) is not None


def _mount_parent(path: str) -> Access:
    """Return the access that mounts the parent of a directory."""
    return _folder(path.rpartition("/")[0], volume=PARENT)


def _runner(view: ModelView, loader_task: LoaderTask) -> Runner:
    """Return the image, labels and security settings for a task's Job. On a node, the Job runs as a user that owns
    nothing but the model directories, as root without capabilities if the operator sets UID 0, or as the user that the
    cluster assigns."""
    settings = view.world.settings
    user = settings.user(ome(settings).run_as_user)
    ids = {} if user is None else {"runAsUser": user, "runAsGroup": user, "runAsNonRoot": user != 0}
    security = {**ids, **CONFINED} if loader_task.node else restricted(settings.user(settings.run_as_user))
    return Runner(
        image=settings.loader_image,
        manager=MANAGER,
        labels={names.MODEL_LABEL: label_value(key(view.resource).name)},
        security=UNPRIVILEGED,
        pod_security=security,
        controller_key=view.world.controller_key,
    )


def _folder(path: str, *, volume: str = VOLUME, read_only: bool = False) -> Access:
    return mounted(volumes.of_the_node(volume, path, "DirectoryOrCreate"), path, read_only=read_only)


def _header(view: ModelView) -> tuple[str, ...]:
    """Return the loader options for reporting the model's metadata. Empty for a FineTunedWeight."""
    return () if view.resource["kind"] == names.FINE_TUNED_WEIGHT.kind else ("--header=model",)


def _guard(view: ModelView, stored: Stored) -> tuple[str, ...]:
    """Return the loader options that restrict the addresses of the source if authors can choose them, and those that
    allow the node's identity. Empty for sources that need neither."""
    if stored.scheme not in ("http", "https", "s3"):
        return ()
    return view.world.settings.sources.options(guarded=stored.scheme != "s3" or bool(stored.spec.key))


def secret_of(view: ModelView, stored: Stored) -> str:
    """Return the name of the Secret with a model's credentials in the namespace of the Jobs, or an empty string if the
    model names none. For a model in another namespace, the name begins with that namespace. The operator creates these
    Secrets, and authors cannot use the Secrets of other namespaces."""
    namespace, secret = key(view.resource).namespace, stored.spec.key or ""
    return f"{namespace}.{secret}" if secret and namespace not in ("", view.job_namespace) else secret


def _source(view: ModelView, stored: Stored) -> Access:
    """Return the loader's access to the source, with only the keys of the model's Secret that the source needs."""
    settings, secret, parameters = view.world.settings, secret_of(view, stored), stored.spec.parameters
    access = of_operator(settings.loader)
    match stored.scheme:
        case "hf":
            inline_token = variables({huggingface.TOKEN: parameters["token"]}) if parameters.get("token") else ()
            token = from_secret(secret, {huggingface.TOKEN: parameters.get("secretKey") or TOKEN_KEY})
            return access + Access(env=(*hub_mirror(settings.hugging_face_endpoint), *(token or inline_token)))
        case "s3":
            region = variables({"AWS_REGION": stored.region} if stored.region else {})
            return access + Access(env=from_secret(secret, {one: one for one in BUCKET_KEYS})) + Access(env=region)
        case "gs":
            return access + from_google(secret, parameters.get("secretKey") or GOOGLE_KEY)
    return access
