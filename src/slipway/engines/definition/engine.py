"""Engine: everything that is specific to one program that runs models. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from slipway.artifacts.locations.huggingface import TOKEN
from slipway.artifacts.locations.weights import Weights
from slipway.engines.definition.flags import FlagTable, Value, given_flags, names_flag, without_effect
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
"""Addresses that an engine may listen on."""
Task = Literal["generate", "embed", "rerank", "transcribe"]


class Draft(msgspec.Struct, frozen=True):
    """A small model that proposes tokens for the served one to check."""

    weights: Weights
    tokens: int
    """That are proposed at a time."""


class Sharding(msgspec.Struct, frozen=True):
    """How a model is spread over the GPUs of its pod."""

    strategy: Literal["layer", "tensor", "row", "pipeline", "none"] = "layer"
    ranges: tuple[str, ...] = ()
    """Layers of each GPU, ``0-24``, both ends included. Empty: the same share for all."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One model to be served by one engine process."""

    weights: Weights
    served_name: str
    """The public model id, so that request bodies pass to the engine unchanged."""
    port: int
    further_names: tuple[str, ...] = ()
    """That requests may have for it as well."""
    tasks: frozenset[Task] = frozenset(("generate",))
    """What the model is for. Empty: not told."""
    adapters: bool = False
    """Whether LoRA adapters are loaded into it while it runs."""
    extra_args: tuple[str, ...] = ()
    """The user's."""
    hub_mirror: str = ""
    """URL of a mirror of the Hugging Face hub, or empty."""
    settings: Mapping[str, Value] = {}
    """What the API sets by itself, under the names of the engine's table; nothing stands for a switch that is off."""
    bind: str = ANYWHERE[0]
    """Address to listen on."""
    gpus: int = 0
    gpu_layers: int = 0
    """Layers in GPU memory; 0: all."""
    sharding: Sharding = Sharding()
    """Over several GPUs."""
    draft: Draft | None = None
    """For speculative decoding."""


UNSET = ("", "~", "null", "false", "no", "off")
"""Values of YAML with which a setting in a file has no effect. Other spellings of them are accepted, too."""
Owned = Mapping[str, Sequence[str]]
"""Flag -> the values that a user's argument may give it: others than these, and the model is not reached or found."""


class Metrics(msgspec.Struct, frozen=True, kw_only=True):
    """Names of an engine's metrics; empty: it has none with that meaning."""

    running: str = ""
    """Requests that it works on."""
    waiting: str = ""
    """Requests that wait in it."""
    prompt_tokens: str = ""
    """Counter of tokens read."""
    generated_tokens: str = ""
    """Counter of tokens written."""
    cache_usage: tuple[str, ...] = ()
    """Share of the memory for contexts that is taken, from 0 to 1; more than one name as versions differ."""
    ttft_seconds: str = ""
    """Histogram of the time to the first token, without ``_bucket``."""
    request_seconds: str = ""
    """Histogram of the time of a request."""
    scaled_by: str = ""
    """What a HorizontalPodAutoscaler follows; empty: ``running``."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is recognized in a container from another author's manifest, and what its command line sets
    there."""

    modules: tuple[str, ...] = ()
    """First parts of the Python modules that run it."""
    names: tuple[str, ...] = ()
    """Of its executables."""
    subcommand: str = ""
    """What follows the executable where it serves, so that its mere name as somebody's argument says nothing. Empty:
    nothing has to."""
    image: str = ""
    """Regular expression of what its image is called, in lower case: the last part of a repository's name."""
    name_flags: tuple[str, ...] = ()
    """Those by which it is told its model's name."""
    several_names: bool = False
    """Whether such a flag takes one name after another; otherwise it takes one word, with commas between names."""
    port_flags: tuple[str, ...] = ("--port",)
    port_variable: str = ""
    """In which it looks for its port where no flag says it."""
    adapters: Callable[[Mapping[str, str]], tuple[str, ...]] | None = None
    """The arguments that give it LoRA adapters, name -> path, at its start; None: it takes none."""


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """One engine. A constant of its module."""

    name: str
    """As in labels and in the operator's settings: ``llamacpp``."""
    container: str
    """Name of its container."""
    tasks: frozenset[Task]
    """What it can do."""
    schemes: frozenset[str]
    """Schemes of what it reads itself: ``hf``, ``s3``, ``ollama`` ..., and ``pvc`` or ``oci`` for a mounted volume. It
    is given nothing else."""
    reads: Literal["folder", "file", "store"] = "folder"
    """What it needs of a mounted volume: the folder of a model, one file in it, or a store in a format of its own that
    may hold several models."""
    probes: Probes
    args: Callable[[Launch], tuple[str, ...]]
    """The command line after the command or the image's entrypoint, the user's arguments in their place.

    Raises ValueError for weights that it cannot load.
    """
    env: Callable[[Launch], Mapping[str, str]]
    """Environment variables."""
    owned: Callable[[Launch], Owned] = lambda _launch: {}
    owned_env: Callable[[Launch], Owned] = lambda _launch: {}
    """The same of variables."""
    any_case: frozenset[str] = frozenset()
    """Variables, in upper case, that it reads in any case."""
    unreachable_by: Owned = {}
    """Flags with which it does not answer HTTP requests for the usual paths, unless they have one of these values."""
    command: tuple[str, ...] = ()
    """What is run in place of the image's entrypoint; empty: the entrypoint."""
    start: Callable[[Launch], tuple[str, ...]] | None = None
    """A command that brings the model into the running engine, where the engine does not do that itself: the startup
    probe runs it."""
    generates_alone: bool = False
    """Whether a process that generates text does nothing else, as a flag takes it for its other tasks."""
    adapters: bool = False
    """Whether LoRA adapters can be loaded while it runs."""
    shell: bool = True
    """Whether its images have a shell."""
    shared_memory: bool = True
    """Whether it needs more of /dev/shm than a container has."""
    cache_path: str = ""
    """A folder for what it downloads, which outlasts its container. Empty: none is set up."""
    reads_model_field: bool = True
    """False: it takes a form's field ``model`` for the name of a model of its own, so it must not see it."""
    log_patterns: tuple[LogPattern, ...] = PYTHON
    flags: FlagTable = ()
    """The flags of the settings that an API may give it, in the order of its command line."""
    port: int = 8000
    """What it listens on where nobody says else."""
    images: Mapping[str, str] = {}
    """``cpu``, ``cuda``, ``gh200``, ``rocm``, ``vulkan``, ``intel`` or ``tpu`` -> public image, of an exact version;
    ``""`` has the one for all others."""
    paths: tuple[str, ...] = ()
    """The paths of ``serving.routing.paths`` that it serves, in any known version or edition. Empty: unknown, and no
    path is refused."""
    optional_paths: Mapping[str, Switches] = {}
    """Those of them that it serves only if an argument or a variable enables them."""
    sealed_by: Seals = Seals()
    """What makes it refuse requests without its own key."""
    devices: Devices = Devices()
    """How it is kept from using the CPU where it was given GPUs."""
    retired: tuple[Retired, ...] = ()
    """Flags that earlier versions had and the images above do not have."""
    older_images: frozenset[str] = frozenset()
    """The accelerators whose image is of a version that still has those flags."""
    abbreviates: bool = False
    """Whether it takes the beginning of a flag for the flag, as argparse does."""
    metrics: Metrics | None = None
    """What Prometheus reads at its path ``/metrics``; None: it has none."""
    closes_idle: bool = False
    """Whether it closes a connection without a request after a few seconds, as llama.cpp and uvicorn do after five."""
    token: str = TOKEN
    """The variable in which it takes a token for the Hugging Face hub."""
    one_family: bool = False
    """Whether it does not answer over IPv4 if it listens on an address of IPv6, as asyncio does."""
    program: Program | None = None
    """How it is recognised where pods come from manifests that somebody else wrote; None: it is not."""

    def conflicting_args(self, launch: Launch) -> tuple[str, ...]:
        """The flags that the user's arguments set to something with which the model would not be reached or found."""
        owned = {**self.owned(launch), **self.unreachable_by}
        return conflicting_flags(launch.extra_args, owned, abbreviated=self.abbreviates)

    def conflicting_settings(self, launch: Launch, settings: Sequence[str]) -> tuple[str, ...]:
        """The same of flags that a file sets, ``--port=1``. Those on the command line have precedence."""
        own = given_flags(self.args(launch))
        owned = {flag: values for flag, values in self.owned(launch).items() if flag not in own}
        effective = [one for one in settings if one.partition("=")[2].lower() not in UNSET]
        return conflicting_flags(effective, {**owned, **self.unreachable_by})

    def conflicting_env(self, launch: Launch, env: Mapping[str, str]) -> tuple[str, ...]:
        """The same of the user's variables."""
        owned = self.owned_env(launch)
        names = {name: name.upper() if name.upper() in self.any_case else name for name in env}
        return tuple(name for name in sorted(env) if env[name] not in owned.get(names[name], (env[name],)))

    def without_effect(self, launch: Launch, field: str) -> dict[str, str]:
        """The settings that are given and have no effect, and why. ``field``: of the spec, that has the user's
        arguments."""
        return without_effect(self.flags, launch.settings, launch.extra_args, launch.gpus, field)

    def renewed(self, args: Sequence[str], *, author_image: str, image: str) -> Renewal:
        """An author's arguments, as the ``image`` takes them that runs: without retired flags if it is a default one.
        With an image of the author's, ``author_image``, they stay unchanged."""
        if author_image or not is_ours(image, self.images, self.older_images):
            return Renewal(tuple(args))
        return renewed(args, self.retired, abbreviated=self.abbreviates)

    def seals(self, container: Object, words: Sequence[str], assigned: Sequence[str] = ()) -> tuple[str, ...]:
        """The flags and variables by which its container refuses what the gateway sends; ``words``: the command line of
        it; ``assigned``: variables that this sets."""
        return seals_in(
            container, words, assigned, self.sealed_by, abbreviated=self.abbreviates, any_case=self.any_case
        )

    def named_devices(self, container: Object) -> tuple[Object, ...]:
        """Variables that make it end if it cannot open the GPUs of its container."""
        return named(container, self.devices)

    def cleared(self, env: Iterable[Object], env_from: Sequence[Object], image: str) -> tuple[Object, ...]:
        """Variables that keep what is in Secrets and ConfigMaps from sealing it."""
        today = is_ours(image, self.images, self.older_images)
        names = (*self.sealed_by.clearable, *(self.sealed_by.clearable_today if today else ()))
        return cleared(env, env_from, names)

    def paths_of(self, container: Container, *replaced: object) -> tuple[str, ...]:
        """What it serves in its container. Empty if the user replaces something of it, such as its image: that may
        serve anything."""
        if any(replaced):
            return ()
        lacking = disabled(container, self.optional_paths)
        return tuple(path for path in self.paths if path not in lacking)

    def image(self, accelerator: str) -> str:
        """Returns its public image for an accelerator; empty: there is none."""
        return self.images.get(accelerator, self.images.get("", ""))

    def probes_of(self, launch: Launch) -> Probes:
        if self.start is None:
            return self.probes
        startup = msgspec.structs.replace(self.probes.startup, command=self.start(launch))
        return msgspec.structs.replace(self.probes, startup=startup)

    def drain(self, seconds: int, bind: str = "") -> Drain:
        """How its pods finish their requests, in ``seconds`` at most. ``bind``: the address that it listens on."""
        gauges = (self.metrics.running, self.metrics.waiting) if self.metrics else ()
        loopback = "[::1]" if self.one_family and ":" in bind else "127.0.0.1"
        metrics = tuple(name for name in gauges if name)
        return Drain(
            seconds=seconds, shell=self.shell, metrics=metrics, closes_idle=self.closes_idle, loopback=loopback
        )

    def explain(self, log: str, download: Download = SOMETHING) -> Failure | None:
        """Returns the meaning of an ended process's last log lines; None: unknown."""
        return match_log(log, self.log_patterns, download)


def http_probes(path: str, startup_seconds: int, *, shared_threads: bool = False) -> Probes:
    """Probes that ask one path. During the start every second: a request may wait for this very replica.

    ``shared_threads``: whether open requests can take all threads that answer the path. Such an engine is full, not
    dead: it gets no more requests until it answers again, and is not restarted as long as its port accepts connections.
    """
    return Probes(
        startup=Probe(path=path, period=1, timeout=2, failures=startup_seconds),
        readiness=Probe(path=path, period=10, timeout=2, failures=3),
        liveness=Probe(path="" if shared_threads else path, period=30, timeout=3, failures=3),
    )


def tcp_probes(startup_seconds: int) -> Probes:
    """Probes that only connect."""
    return http_probes("", startup_seconds)


def conflicting_flags(args: Sequence[str], owned: Owned, *, abbreviated: bool = False) -> tuple[str, ...]:
    """The flags among ``args`` that set something else than they may, as the user spelled them.

    A flag's value is what follows its ``=``, or the next argument. An underscore in a long flag is a hyphen.
    """
    conflicts: dict[str, None] = {}
    for position, arg in enumerate(args):
        spelled, equals, value = arg.partition("=")
        given = value if equals else "".join(args[position + 1 : position + 2])
        flags = [one for one in owned if names_flag(spelled, one, abbreviated=abbreviated)]
        if flags and not any(given in owned[one] for one in flags):
            conflicts[spelled] = None
    return tuple(conflicts)
