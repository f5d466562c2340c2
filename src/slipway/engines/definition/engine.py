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
"""The addresses for all interfaces, of IPv4 and of IPv6, on which an engine may listen."""
FULL_SECONDS = 600
"""Minimum seconds without a successful liveness probe after which an engine that may be full is restarted."""
Task = Literal["generate", "embed", "rerank", "transcribe"]


class Draft(msgspec.Struct, frozen=True):
    """A small model that proposes tokens for the served model to verify (speculative decoding)."""

    weights: Weights
    tokens: int
    """Number of tokens that the draft model proposes per step."""


class Sharding(msgspec.Struct, frozen=True):
    """The distribution of a model over the GPUs of its pod."""

    strategy: Literal["layer", "tensor", "row", "pipeline", "none"] = "layer"
    ranges: tuple[str, ...] = ()
    """Layers of each GPU, such as ``0-24`` (inclusive); empty for equal shares."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters with which an engine process serves one model."""

    weights: Weights
    served_name: str
    """Public model ID. The engine uses the same name, so that request bodies can reach it unchanged."""
    port: int
    further_names: tuple[str, ...] = ()
    """Further model names that clients may use in requests."""
    tasks: frozenset[Task] = frozenset(("generate",))
    """Tasks of the model; empty if they are not declared."""
    adapters: bool = False
    """Whether LoRA adapters are loaded at runtime."""
    extra_args: tuple[str, ...] = ()
    """The user's arguments for the engine."""
    hub_mirror: str = ""
    """URL of a mirror of the Hugging Face Hub; empty for the Hub itself."""
    settings: Mapping[str, Value] = {}
    """Typed settings from the API, by their names in the engine's flag table. Disabled switches are omitted."""
    bind: str = ANYWHERE[0]
    """Address on which the engine listens."""
    gpus: int = 0
    """Number of GPUs of the pod; 0: none, or the number does not matter to the API."""
    gpu_layers: int = 0
    """Number of layers in GPU memory; 0 for all layers."""
    sharding: Sharding = Sharding()
    """Distribution of the model over several GPUs."""
    draft: Draft | None = None
    """Draft model for speculative decoding."""


UNSET = ("", "~", "null", "false", "no", "off")
"""YAML values, in lower case, with which a setting in a file has no effect."""
Owned = Mapping[str, Sequence[str]]
"""Flag or environment variable -> the values that a user may set; empty: none. With any other value, the gateway could
not reach the model."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Names of an engine's metrics. A name is empty if the engine has no such metric."""

    running: str = ""
    """Number of requests in progress."""
    waiting: str = ""
    """Number of waiting requests."""
    prompt_tokens: str = ""
    """Counter of prompt tokens."""
    generated_tokens: str = ""
    """Counter of generated tokens."""
    cache_usage: tuple[str, ...] = ()
    """Used share of the KV cache, from 0 to 1. There are several names if versions of the engine differ."""
    ttft_seconds: str = ""
    """Histogram of the time to first token, without ``_bucket``."""
    request_seconds: str = ""
    """Histogram of the request duration."""
    scaled_by: str = ""
    """Metric for a HorizontalPodAutoscaler; empty for ``running``."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """Properties by which to recognize a program in another author's manifest, and to parse its command line."""

    modules: tuple[str, ...] = ()
    """First components of the Python modules that run the program, such as ``vllm``."""
    names: tuple[str, ...] = ()
    """Names of the program's executables."""
    subcommand: str = ""
    """Subcommand that must follow the executable, such as ``serve``, because the name alone may be an argument of
    another program. Empty if none is required."""
    image: str = ""
    """Regular expression for the last component of an image's repository in lower case. Empty to match no image."""
    name_flags: tuple[str, ...] = ()
    """Flags that set the model's name."""
    several_names: bool = False
    """Whether a flag in ``name_flags`` takes several names as separate words, instead of one word with commas."""
    port_flags: tuple[str, ...] = ("--port",)
    port_variable: str = ""
    """Environment variable with the port, used if no flag sets the port."""
    adapters: Callable[[Mapping[str, str]], tuple[str, ...]] | None = None
    """Function that returns the arguments to load LoRA adapters (name -> path) at startup; None if unsupported."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """The definition of an engine, which is a constant in the engine's module."""

    name: str
    """Name in labels and in the operator's settings, such as ``llamacpp``."""
    container: str
    """Name of the engine's container in a pod."""
    tasks: frozenset[Task]
    """Tasks that the engine supports."""
    schemes: frozenset[str]
    """Schemes of sources that the engine supports: those from which it downloads, such as ``hf``, ``s3`` or ``ollama``,
    and ``pvc`` or ``oci`` for a mounted volume."""
    reads: Literal["folder", "file", "store"] = "folder"
    """Kind of path that the engine needs on a mounted volume: a model's directory, a single file, or a store in its own
    format that may contain several models."""
    probes: Probes
    args: Callable[[Launch], tuple[str, ...]]
    """Function that returns the arguments after the command or the image's entrypoint, including the user's arguments.

    Like ``env``, ``owned``, ``owned_env`` and ``start``, it may raise ValueError for weights that the engine cannot
    load.
    """
    env: Callable[[Launch], Mapping[str, str]]
    """Function that returns the environment variables of the engine's container."""
    owned: Callable[[Launch], Owned] = lambda _launch: {}
    """Function that returns flag -> values that a user may set."""
    owned_env: Callable[[Launch], Owned] = lambda _launch: {}
    """Function that returns environment variable -> values that a user may set."""
    any_case: frozenset[str] = frozenset()
    """Names, in upper case, of the environment variables that the engine accepts in any case."""
    unreachable_by: Owned = {}
    """Flag -> values that a user may set. With any other value, the engine does not answer on the usual paths."""
    command: tuple[str, ...] = ()
    """Command that replaces the image's entrypoint; empty to keep the entrypoint."""
    start: Callable[[Launch], tuple[str, ...]] | None = None
    """Function that returns a command to load the model into the running engine, which the startup probe runs. None if
    the engine loads the model itself."""
    generates_alone: bool = False
    """Whether a process that generates text cannot serve other tasks, because they need a flag."""
    adapters: bool = False
    """Whether the engine can load LoRA adapters at runtime."""
    shell: bool = True
    """Whether the engine's images have a shell."""
    shared_memory: bool = True
    """Whether the engine needs more ``/dev/shm`` than a container has by default."""
    cache_path: str = ""
    """Directory for downloads, which a container restart keeps; empty if the engine needs none."""
    reads_model_field: bool = True
    """Whether the engine expects its served name in a form's field ``model``. If not, the field must be hidden from it,
    because the engine looks up the value among its own models."""
    log_patterns: tuple[LogPattern, ...] = PYTHON
    flags: FlagTable = ()
    """Flags for the typed settings of an API, in the order of the command line."""
    port: int = 8000
    """The engine's default port."""
    images: Mapping[str, str] = {}
    """Accelerator -> public image with an exact version. Accelerators are ``cpu``, ``cuda``, ``gh200``, ``rocm``,
    ``vulkan``, ``intel``, ``tpu``, and ``""`` for all others."""
    paths: tuple[str, ...] = ()
    """Paths from ``serving.routing.paths`` that any version or edition of the engine serves. Empty if they are unknown,
    so that no path is rejected."""
    optional_paths: Mapping[str, Switches] = {}
    """Path in ``paths`` that the engine does not serve by default -> the flags and environment variables that enable
    it."""
    sealed_by: Seals = Seals()
    """Settings with which the engine rejects requests without its own key or without TLS."""
    devices: Devices = Devices()
    """The setting that prevents the engine from using the CPU if its container has GPUs."""
    retired: tuple[Retired, ...] = ()
    """Flags of earlier versions that the versions in ``images`` no longer have."""
    older_images: frozenset[str] = frozenset()
    """Accelerators whose image is an older version, which still supports the flags in ``retired``."""
    abbreviates: bool = False
    """Whether the engine accepts abbreviated flags, as argparse does."""
    metrics: Metrics | None = None
    """Names of the metrics at the engine's path ``/metrics``; None if it has no metrics."""
    closes_idle: bool = False
    """Whether the engine closes an idle connection after a few seconds. llama.cpp and uvicorn close it after five."""
    shared_threads: bool = False
    """Whether open requests can use all threads that also answer the engine's probes."""
    token: str = TOKEN
    """Environment variable for the Hugging Face token."""
    one_family: bool = False
    """Whether the engine does not answer over IPv4 while it listens on an IPv6 address. Servers with asyncio do not."""
    program: Program | None = None
    """Properties by which to recognize the engine in other authors' manifests; None if it is never recognized."""

    def conflicting_args(self, launch: Launch) -> tuple[str, ...]:
        """Return the flags in the user's arguments with which the gateway could not reach the model."""
        owned = {**self.owned(launch), **self.unreachable_by}
        return conflicting_flags(launch.extra_args, owned, abbreviated=self.abbreviates)

    def conflicting_settings(self, launch: Launch, settings: Sequence[str]) -> tuple[str, ...]:
        """Return the settings in the user's file with which the gateway could not reach the model. ``settings``: flags
        such as ``--port=1``. Settings with a value in ``UNSET`` have no effect. Flags on the command line take
        precedence over the file."""
        own = flag_names(self.args(launch))
        owned = {flag: values for flag, values in self.owned(launch).items() if flag not in own}
        effective = [one for one in settings if one.partition("=")[2].lower() not in UNSET]
        return conflicting_flags(effective, {**owned, **self.unreachable_by})

    def conflicting_env(self, launch: Launch, env: Mapping[str, str]) -> tuple[str, ...]:
        """Return the user's environment variables with which the gateway could not reach the model."""
        owned = self.owned_env(launch)
        names = {name: name.upper() if name.upper() in self.any_case else name for name in env}
        return tuple(name for name in sorted(env) if env[name] not in owned.get(names[name], (env[name],)))

    def without_effect(self, launch: Launch, field: str) -> dict[str, str]:
        """Return the reason for each typed setting that has no effect, by the name of the setting. ``field`` is the
        spec's field with the user's arguments."""
        return without_effect(self.flags, launch.settings, launch.extra_args, launch.gpus, field)

    def renewed(self, args: Sequence[str], *, author_image: str, image: str) -> Renewal:
        """Return an author's arguments for ``image``. Remove or replace retired flags if the controller chose the
        image, and it is a default image that no longer supports them. ``author_image``: the author's own image, or
        empty."""
        if author_image or not is_ours(image, self.images, self.older_images):
            return Renewal(tuple(args))
        return renewed(args, self.retired, abbreviated=self.abbreviates)

    def seals(self, container: Object, words: Sequence[str], assigned: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the flags and environment variables with which a container rejects the gateway's requests. ``words``:
        the command line of the container; ``assigned``: environment variables that the command line sets."""
        return seals_in(
            container, words, assigned, self.sealed_by, abbreviated=self.abbreviates, any_case=self.any_case
        )

    def named_devices(self, container: Object) -> tuple[Object, ...]:
        """Return the environment variable that makes the engine exit if it cannot open the GPUs of its container. Empty
        if there is no such variable, or its value is unknown (see ``gpus.named``)."""
        return named(container, self.devices)

    def cleared(self, env: Iterable[Object], env_from: Sequence[Object], image: str) -> tuple[Object, ...]:
        """Return empty environment variables for a container with ``env``, ``env_from`` and ``image``. They override
        values from Secrets and ConfigMaps with which the engine would reject requests without a key or TLS. Empty if
        ``env_from`` is empty."""
        today = is_ours(image, self.images, self.older_images)
        names = (*self.sealed_by.clearable, *(self.sealed_by.clearable_today if today else ()))
        return cleared(env, env_from, names)

    def paths_of(self, container: Container, *replaced: object) -> tuple[str, ...]:
        """Return the paths that the engine serves in ``container``, without disabled optional paths. Empty for unknown
        paths, and if any of ``replaced`` is set, for example a custom image."""
        if any(replaced):
            return ()
        lacking = disabled(container, self.optional_paths)
        return tuple(path for path in self.paths if path not in lacking)

    def image(self, accelerator: str) -> str:
        """Return the engine's public image for an accelerator, or else for all others; empty if there is neither."""
        return self.images.get(accelerator, self.images.get("", ""))

    def probes_of(self, launch: Launch) -> Probes:
        probes = msgspec.structs.replace(self.probes, liveness=self.liveness(self.probes.liveness))
        if self.start is None:
            return probes
        return msgspec.structs.replace(
            probes, startup=msgspec.structs.replace(probes.startup, command=self.start(launch))
        )

    def liveness(self, probe: Probe) -> Probe:
        """Return ``probe``, with more tolerated failures if probes of a full engine may fail.

        A full engine gets no more requests until it answers its probes again. A restart would break its streams.
        """
        failures = max(probe.failures, FULL_SECONDS // probe.period) if self.shared_threads else probe.failures
        return msgspec.structs.replace(probe, failures=failures)

    def drain(self, seconds: int, bind: str = "") -> Drain:
        """Return the settings with which a pod finishes its requests within ``seconds`` when it is deleted. ``bind``:
        the address on which the engine listens."""
        gauges = (self.metrics.running, self.metrics.waiting) if self.metrics else ()
        loopback = "[::1]" if self.one_family and ":" in bind else "127.0.0.1"
        metrics = tuple(name for name in gauges if name)
        return Drain(
            seconds=seconds, shell=self.shell, metrics=metrics, closes_idle=self.closes_idle, loopback=loopback
        )

    def explain(self, log: str, download: Download = SOMETHING) -> Failure | None:
        """Return the cause of a failure from the last log lines of an engine that exited. Return None if it is
        unknown."""
        return match_log(log, self.log_patterns, download)


def http_probes(path: str, startup_seconds: int) -> Probes:
    """Return probes of a single HTTP path, or if it is empty, of the TCP port. The startup probe runs every second,
    because a request may be waiting for the replica. It fails after ``startup_seconds``."""
    return Probes(
        startup=Probe(path=path, period=1, timeout=2, failures=startup_seconds),
        readiness=Probe(path=path, period=10, timeout=2, failures=3),
        liveness=Probe(path=path, period=30, timeout=3, failures=3),
    )


def tcp_probes(startup_seconds: int) -> Probes:
    """Return probes that only open a TCP connection. The startup probe fails after ``startup_seconds``."""
    return http_probes("", startup_seconds)


def conflicting_flags(args: Sequence[str], owned: Owned, *, abbreviated: bool = False) -> tuple[str, ...]:
    """Return the flags in ``args`` whose names are in ``owned``, but whose values are not, as the user spelled them.

    The value of a flag is the text after ``=``, or the next argument. Underscores in long flags count as hyphens.
    """
    conflicts: dict[str, None] = {}
    for position, arg in enumerate(args):
        spelled, equals, value = arg.partition("=")
        argument = value if equals else "".join(args[position + 1 : position + 2])
        flags = [one for one in owned if names_flag(spelled, one, abbreviated=abbreviated)]
        if flags and not any(argument in owned[one] for one in flags):
            conflicts[spelled] = None
    return tuple(conflicts)
