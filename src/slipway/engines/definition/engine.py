"""Engine: everything that is specific to one program that runs models. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from slipway.artifacts.locations.huggingface import TOKEN
from slipway.artifacts.locations.weights import Weights
from slipway.engines.definition.flags import FlagTable, Value, flag_names, names_flag, without_effect
from slipway.engines.definition.gpus import Devices, named
from slipway.engines.definition.log_patterns import SOMETHING, Download, LogPattern, match_log
from slipway.engines.definition.optional_paths import Switches, disabled
from slipway.engines.definition.python import PYTHON
from slipway.engines.definition.retired import Renewal, Retired, is_ours, renewed
from slipway.engines.definition.sealed import Seals, cleared, seals_in
from slipway.kube.objects import Object
from slipway.serving.containers.diagnosis import Failure
from slipway.serving.containers.drain import Drain
from slipway.serving.pods.server import Container, Probe, Probes

ANYWHERE = ("0.0.0.0", "::")  # noqa: S104 - a pod's own address is not known before it runs
"""Addresses on which an engine may listen."""
FULL_SECONDS = 600
"""An engine that may be full is restarted after this time without an answer."""
Task = Literal["generate", "embed", "rerank", "transcribe"]


class Draft(msgspec.Struct, frozen=True):
    """A small model that proposes tokens for the served model to verify (speculative decoding)."""

    weights: Weights
    tokens: int
    """Number of tokens proposed at a time."""


class Sharding(msgspec.Struct, frozen=True):
    """How a model is distributed over the GPUs of its pod."""

    strategy: Literal["layer", "tensor", "row", "pipeline", "none"] = "layer"
    ranges: tuple[str, ...] = ()
    """Layers of each GPU, such as ``0-24`` (inclusive). Empty: equal shares."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One model to serve with one engine process."""

    weights: Weights
    served_name: str
    """The public model ID, so that request bodies reach the engine unchanged."""
    port: int
    further_names: tuple[str, ...] = ()
    """Further names for the model in requests."""
    tasks: frozenset[Task] = frozenset(("generate",))
    """The model's purposes. Empty: not declared."""
    adapters: bool = False
    """Whether LoRA adapters are loaded at runtime."""
    extra_args: tuple[str, ...] = ()
    """The user's arguments."""
    hub_mirror: str = ""
    """URL of a mirror of the Hugging Face Hub; may be empty."""
    settings: Mapping[str, Value] = {}
    """Settings that the API makes, by their names in the engine's flag table; a disabled switch is omitted."""
    bind: str = ANYWHERE[0]
    """Address on which to listen."""
    gpus: int = 0
    gpu_layers: int = 0
    """Number of layers in GPU memory; 0: all."""
    sharding: Sharding = Sharding()
    """Distribution over several GPUs."""
    draft: Draft | None = None
    """Draft model for speculative decoding."""


UNSET = ("", "~", "null", "false", "no", "off")
"""YAML values with which a setting in a file has no effect. Their other spellings are accepted as well."""
Owned = Mapping[str, Sequence[str]]
"""Flag -> allowed values in a user's arguments. With any other value, the model could not be reached or found."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Names of an engine's metrics; empty: it has no such metric."""

    running: str = ""
    """Number of requests in progress."""
    waiting: str = ""
    """Number of waiting requests."""
    prompt_tokens: str = ""
    """Counter of prompt tokens."""
    generated_tokens: str = ""
    """Counter of generated tokens."""
    cache_usage: tuple[str, ...] = ()
    """Used share of the KV cache, from 0 to 1; several names if versions differ."""
    ttft_seconds: str = ""
    """Histogram of the time to first token, without ``_bucket``."""
    request_seconds: str = ""
    """Histogram of the request duration."""
    scaled_by: str = ""
    """Metric for a HorizontalPodAutoscaler; empty: ``running``."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """How to recognize a program in a container of another author's manifest, and what its command line sets."""

    modules: tuple[str, ...] = ()
    """First components of the Python modules that run it."""
    names: tuple[str, ...] = ()
    """Names of its executables."""
    subcommand: str = ""
    """The subcommand with which it serves. It is required after the executable, because the name alone may be another
    program's argument. Empty: not required."""
    image: str = ""
    """Regular expression for its image's name in lower case: the last component of the repository."""
    name_flags: tuple[str, ...] = ()
    """Flags for the model's name."""
    several_names: bool = False
    """Whether a flag in ``name_flags`` takes several names as separate words; otherwise it takes one word with
    commas."""
    port_flags: tuple[str, ...] = ("--port",)
    port_variable: str = ""
    """Variable with its port, used if no flag sets it."""
    adapters: Callable[[Mapping[str, str]], tuple[str, ...]] | None = None
    """Returns the arguments that load LoRA adapters (name -> path) at startup; None: not supported."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """Definition of an engine: a constant of its module."""

    name: str
    """Name in labels and in the operator's settings, such as ``llamacpp``."""
    container: str
    """Name of its container."""
    tasks: frozenset[Task]
    """Tasks that it supports."""
    schemes: frozenset[str]
    """Schemes of sources that it reads itself: ``hf``, ``s3``, ``ollama`` ..., and ``pvc`` or ``oci`` for a mounted
    volume. It is not used for any others."""
    reads: Literal["folder", "file", "store"] = "folder"
    """What it needs on a mounted volume: a model's directory, a single file in it, or a store in its own format that
    may contain several models."""
    probes: Probes
    args: Callable[[Launch], tuple[str, ...]]
    """Returns the command line after the command or the image's entrypoint, including the user's arguments.

    Raises ValueError for weights that it cannot load.
    """
    env: Callable[[Launch], Mapping[str, str]]
    """Returns the environment variables."""
    owned: Callable[[Launch], Owned] = lambda _launch: {}
    owned_env: Callable[[Launch], Owned] = lambda _launch: {}
    """Returns variables -> allowed values, as ``owned`` does for flags."""
    any_case: frozenset[str] = frozenset()
    """Variables, in upper case, that it accepts in any case."""
    unreachable_by: Owned = {}
    """Flag -> allowed values. With any other value, the engine does not answer HTTP requests on the usual paths."""
    command: tuple[str, ...] = ()
    """Command that replaces the image's entrypoint; empty: the entrypoint."""
    start: Callable[[Launch], tuple[str, ...]] | None = None
    """Returns a command that loads the model into the running engine, if the engine does not do that itself. The
    startup probe runs it."""
    generates_alone: bool = False
    """Whether a process that generates text cannot do anything else, because its other tasks need a flag."""
    adapters: bool = False
    """Whether it can load LoRA adapters at runtime."""
    shell: bool = True
    """Whether its images have a shell."""
    shared_memory: bool = True
    """Whether it needs more /dev/shm than a container has by default."""
    cache_path: str = ""
    """Directory for downloads that survives a container restart. Empty: none."""
    reads_model_field: bool = True
    """False: it interprets a form's field ``model`` as one of its own models, so the field must be hidden from it."""
    log_patterns: tuple[LogPattern, ...] = PYTHON
    flags: FlagTable = ()
    """The flags for settings of an API, in the order of its command line."""
    port: int = 8000
    """Its default port."""
    images: Mapping[str, str] = {}
    """``cpu``, ``cuda``, ``gh200``, ``rocm``, ``vulkan``, ``intel`` or ``tpu`` -> public image with an exact version;
    ``""`` is the one for all others."""
    paths: tuple[str, ...] = ()
    """The paths in ``serving.routing.paths`` that it serves, in any known version or edition. Empty: unknown, and no
    path is rejected."""
    optional_paths: Mapping[str, Switches] = {}
    """Those of ``paths`` that it serves only if an argument or a variable enables them."""
    sealed_by: Seals = Seals()
    """Settings with which it rejects requests without its own key."""
    devices: Devices = Devices()
    """How to prevent it from using the CPU if it has GPUs."""
    retired: tuple[Retired, ...] = ()
    """Flags of earlier versions that the versions in ``images`` no longer have."""
    older_images: frozenset[str] = frozenset()
    """Accelerators whose image has an older version, which still has the flags in ``retired``."""
    abbreviates: bool = False
    """Whether it accepts abbreviated flags, as argparse does."""
    metrics: Metrics | None = None
    """Metrics at its path ``/metrics``; None: it has none."""
    closes_idle: bool = False
    """Whether it closes a connection a few seconds after an answer, as llama.cpp and uvicorn do after five."""
    shared_threads: bool = False
    """Whether open requests can use all threads that answer its probes."""
    token: str = TOKEN
    """Variable for the Hugging Face token."""
    one_family: bool = False
    """Whether it does not answer over IPv4 while it listens on an IPv6 address, as with asyncio."""
    program: Program | None = None
    """How to recognize it in pods from other authors' manifests; None: not recognized."""

    def conflicting_args(self, launch: Launch) -> tuple[str, ...]:
        """Returns the flags in the user's arguments with which the model would not be reached or found."""
        owned = {**self.owned(launch), **self.unreachable_by}
        return conflicting_flags(launch.extra_args, owned, abbreviated=self.abbreviates)

    def conflicting_settings(self, launch: Launch, settings: Sequence[str]) -> tuple[str, ...]:
        """Returns the same for flags in a file, such as ``--port=1``. Flags on the command line take precedence."""
        own = flag_names(self.args(launch))
        owned = {flag: values for flag, values in self.owned(launch).items() if flag not in own}
        effective = [one for one in settings if one.partition("=")[2].lower() not in UNSET]
        return conflicting_flags(effective, {**owned, **self.unreachable_by})

    def conflicting_env(self, launch: Launch, env: Mapping[str, str]) -> tuple[str, ...]:
        """Returns the user's variables with which the model would not be reached or found."""
        owned = self.owned_env(launch)
        names = {name: name.upper() if name.upper() in self.any_case else name for name in env}
        return tuple(name for name in sorted(env) if env[name] not in owned.get(names[name], (env[name],)))

    def without_effect(self, launch: Launch, field: str) -> dict[str, str]:
        """Returns setting -> reason for all settings without effect. ``field``: the spec's field with the user's
        arguments."""
        return without_effect(self.flags, launch.settings, launch.extra_args, launch.gpus, field)

    def renewed(self, args: Sequence[str], *, author_image: str, image: str) -> Renewal:
        """Returns an author's arguments for the ``image`` that runs, without retired flags if it is a default image.
        With the author's own image, ``author_image``, they are unchanged."""
        if author_image or not is_ours(image, self.images, self.older_images):
            return Renewal(tuple(args))
        return renewed(args, self.retired, abbreviated=self.abbreviates)

    def seals(self, container: Object, words: Sequence[str], assigned: Sequence[str] = ()) -> tuple[str, ...]:
        """Returns the flags and variables with which its container rejects the gateway's requests. ``words``: its
        command line; ``assigned``: variables set there."""
        return seals_in(
            container, words, assigned, self.sealed_by, abbreviated=self.abbreviates, any_case=self.any_case
        )

    def named_devices(self, container: Object) -> tuple[Object, ...]:
        """Returns variables that make it exit if it cannot open the GPUs of its container."""
        return named(container, self.devices)

    def cleared(self, env: Iterable[Object], env_from: Sequence[Object], image: str) -> tuple[Object, ...]:
        """Returns variables that override values from Secrets and ConfigMaps with which it would reject requests
        without a key."""
        today = is_ours(image, self.images, self.older_images)
        names = (*self.sealed_by.clearable, *(self.sealed_by.clearable_today if today else ()))
        return cleared(env, env_from, names)

    def paths_of(self, container: Container, *replaced: object) -> tuple[str, ...]:
        """Returns the paths that the engine serves in ``container``, without optional paths that are disabled. Empty if
        any of ``replaced`` is set, such as a custom image, because such a container may serve anything."""
        if any(replaced):
            return ()
        lacking = disabled(container, self.optional_paths)
        return tuple(path for path in self.paths if path not in lacking)

    def image(self, accelerator: str) -> str:
        """Returns its public image for an accelerator; empty if there is none."""
        return self.images.get(accelerator, self.images.get("", ""))

    def probes_of(self, launch: Launch) -> Probes:
        probes = msgspec.structs.replace(self.probes, liveness=self.liveness(self.probes.liveness))
        if self.start is None:
            return probes
        return msgspec.structs.replace(
            probes, startup=msgspec.structs.replace(probes.startup, command=self.start(launch))
        )

    def liveness(self, probe: Probe) -> Probe:
        """Returns the liveness probe with more failures if the engine may be full, rather than hang.

        A full engine gets no more requests until it answers its probes again. A restart would break its streams.
        """
        failures = max(probe.failures, FULL_SECONDS // probe.period) if self.shared_threads else probe.failures
        return msgspec.structs.replace(probe, failures=failures)

    def drain(self, seconds: int, bind: str = "") -> Drain:
        """Returns how its pods finish their requests, within ``seconds``. ``bind``: the address on which it listens."""
        gauges = (self.metrics.running, self.metrics.waiting) if self.metrics else ()
        loopback = "[::1]" if self.one_family and ":" in bind else "127.0.0.1"
        metrics = tuple(name for name in gauges if name)
        return Drain(
            seconds=seconds, shell=self.shell, metrics=metrics, closes_idle=self.closes_idle, loopback=loopback
        )

    def explain(self, log: str, download: Download = SOMETHING) -> Failure | None:
        """Returns the meaning of an ended process's last log lines; None: unknown."""
        return match_log(log, self.log_patterns, download)


def http_probes(path: str, startup_seconds: int) -> Probes:
    """Returns probes of a single path. During startup they run every second, because a request may be waiting for this
    replica."""
    return Probes(
        startup=Probe(path=path, period=1, timeout=2, failures=startup_seconds),
        readiness=Probe(path=path, period=10, timeout=2, failures=3),
        liveness=Probe(path=path, period=30, timeout=3, failures=3),
    )


def tcp_probes(startup_seconds: int) -> Probes:
    """Returns probes that only open a connection."""
    return http_probes("", startup_seconds)


def conflicting_flags(args: Sequence[str], owned: Owned, *, abbreviated: bool = False) -> tuple[str, ...]:
    """Returns the flags in ``args`` with forbidden values, as the user spelled them.

    A flag's value follows its ``=``, or is the next argument. Underscores in long flags count as hyphens.
    """
    conflicts: dict[str, None] = {}
    for position, arg in enumerate(args):
        spelled, equals, value = arg.partition("=")
        argument = value if equals else "".join(args[position + 1 : position + 2])
        flags = [one for one in owned if names_flag(spelled, one, abbreviated=abbreviated)]
        if flags and not any(argument in owned[one] for one in flags):
            conflicts[spelled] = None
    return tuple(conflicts)
