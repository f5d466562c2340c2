"""The stand-ins of device plugins speak the kubelet's protocol: they register, tell of their devices, and allocate."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from .conftest import ENVIRONMENT, PACKAGES

sys.path.insert(0, str(PACKAGES))
from standin.device_plugin import api
from standin.device_plugin.hardware import FILE, Hardware, resources
from standin.device_plugin.wire import Field, decode, encode

PATIENCE = 60
SHARED = {"resources": [{"name": "nvidia.com/gpu", "replicas": 3}]}


class Kubelet:
    """Its registry in a folder; the sockets of plugins are called as the kubelet calls them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registered: dict[str, str] = {}
        self._start()

    def _start(self) -> None:
        handler = grpc.unary_unary_rpc_method_handler(
            self._register, partial(decode, shape=api.REGISTRATION), partial(encode, shape=api.EMPTY)
        )
        self._server = grpc.server(ThreadPoolExecutor(2))
        service, method = api.REGISTER.strip("/").split("/")
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        self._server.add_insecure_port(f"unix://{self.folder / 'kubelet.sock'}")
        self._server.start()

    def _register(self, request: dict[str, Any], _context: Any) -> dict[str, Any]:
        assert request["version"] == "v1beta1"
        self.registered[request["resource_name"]] = request["endpoint"]
        return {}

    def restart(self) -> None:
        self.stop()
        self.registered.clear()
        for socket in self.folder.glob("*.sock"):
            socket.unlink()
        self._start()

    def stop(self) -> None:
        self._server.stop(grace=None).wait()

    def wait_for(self, resource: str) -> grpc.Channel:
        wait(lambda: resource in self.registered)
        return grpc.insecure_channel(f"unix://{self.folder / self.registered[resource]}")

    def allocate(self, resource: str, *ids: str) -> str:
        with self.wait_for(resource) as channel:
            call = channel.unary_unary(
                f"/{api.SERVICE}/Allocate",
                request_serializer=partial(encode, shape=api.ALLOCATION),
                response_deserializer=partial(decode, shape=api.GRANTS),
            )
            answer = call({"container_requests": [{"devices_ids": list(ids)}]}, timeout=PATIENCE)
        variable: str = answer["container_responses"][0]["envs"]["NVIDIA_VISIBLE_DEVICES"]
        return variable


def wait(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        threading.Event().wait(0.02)


def watch(channel: grpc.Channel) -> Iterator[dict[str, str]]:
    call = channel.unary_stream(
        f"/{api.SERVICE}/ListAndWatch",
        request_serializer=partial(encode, shape=api.EMPTY),
        response_deserializer=partial(decode, shape=api.DEVICES),
    )
    for news in call({}, timeout=PATIENCE):
        yield {device["ID"]: device["health"] for device in news["devices"]}


@pytest.fixture
def kubelet() -> Iterator[Kubelet]:
    # A socket's path may have no more than a hundred characters.
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        fake_kubelet = Kubelet(Path(folder))
        yield fake_kubelet
        fake_kubelet.stop()


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(kubelet: Kubelet, tmp_path: Path) -> Iterator[Start]:
    started: list[subprocess.Popen[bytes]] = []

    def run(**settings: Any) -> subprocess.Popen[bytes]:
        (tmp_path / "config.yaml").write_text(yaml.safe_dump({"version": "v1", **settings}))
        command = [sys.executable, "-m", "standin.device_plugin", "nvidia", "--folder", str(kubelet.folder)]
        environment = ENVIRONMENT | {"CONFIG_FILE": str(tmp_path / "config.yaml")}
        started.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE))
        return started[-1]

    yield run
    for process in started:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def test_it_registers_and_tells_of_devices_that_fall_ill_and_recover(kubelet: Kubelet, start: Start) -> None:
    start()
    with kubelet.wait_for("nvidia.com/gpu") as channel:
        news = watch(channel)
        assert next(news) == {"GPU-0": "Healthy", "GPU-1": "Healthy"}
        (kubelet.folder / FILE).write_text(json.dumps({"gpus": 2, "unhealthy": ["GPU-1"]}))
        assert next(news) == {"GPU-0": "Healthy", "GPU-1": "Unhealthy"}
        (kubelet.folder / FILE).write_text(json.dumps({"gpus": 3}))
        assert next(news) == {"GPU-0": "Healthy", "GPU-1": "Healthy", "GPU-2": "Healthy"}


def test_an_allocation_names_the_gpus_of_the_container(kubelet: Kubelet, start: Start) -> None:
    start(sharing={"timeSlicing": SHARED})

    assert kubelet.allocate("nvidia.com/gpu", "GPU-0::1", "GPU-0::2", "GPU-1::0") == "GPU-0,GPU-1"


def test_a_request_for_several_shared_gpus_is_refused_if_so_configured(kubelet: Kubelet, start: Start) -> None:
    start(sharing={"timeSlicing": SHARED | {"failRequestsGreaterThanOne": True, "renameByDefault": True}})

    assert kubelet.allocate("nvidia.com/gpu.shared", "GPU-1::0") == "GPU-1"
    with pytest.raises(grpc.RpcError, match="maximum request size for shared resources is 1"):
        kubelet.allocate("nvidia.com/gpu.shared", "GPU-1::0", "GPU-1::1")


def test_it_registers_anew_when_the_kubelet_starts_anew(kubelet: Kubelet, start: Start) -> None:
    start()
    wait(lambda: "nvidia.com/gpu" in kubelet.registered)
    kubelet.restart()

    assert kubelet.allocate("nvidia.com/gpu", "GPU-0") == "GPU-0"


def test_without_a_driver_the_plugin_exits_with_a_message(kubelet: Kubelet, start: Start) -> None:
    (kubelet.folder / FILE).write_text(json.dumps({"driver": False}))
    process = start()

    assert process.wait(timeout=PATIENCE) == 1
    assert process.stderr is not None
    assert b"failed to initialize NVML" in process.stderr.read()


@pytest.mark.parametrize(
    ("strategy", "offered"),
    [
        ("none", {"nvidia.com/gpu": 2}),
        ("single", {"nvidia.com/gpu": 6}),
        ("mixed", {"nvidia.com/mig-1g.10gb": 4, "nvidia.com/mig-3g.40gb": 2}),
    ],
)
def test_gpus_that_are_cut_are_offered_as_the_strategy_says(strategy: str, offered: dict[str, int]) -> None:
    cut = Hardware(gpus=2, mig={"1g.10gb": 2, "3g.40gb": 1})
    offers = resources(cut, {"flags": {"migStrategy": strategy}})

    assert {resource: len(devices) for resource, devices in offers.items()} == offered


def test_messages_are_as_protocol_buffers_have_them() -> None:
    shape = {
        "number": Field(1, int),
        "word": Field(2),
        "words": Field(3, repeated=True),
        "inner": Field(4, shape={"flag": Field(1, bool)}),
        "pairs": Field(16, is_map=True),
    }
    message = {"number": 300, "word": "é", "words": ["a", ""], "inner": {"flag": True}, "pairs": {"k": "v"}}
    data = bytes.fromhex("08ac021202c3a91a01611a00220208018201060a016b120176")

    assert encode(message, shape) == data
    assert decode(data + bytes.fromhex("f80701"), shape) == message
    assert decode(b"", shape) == {"number": 0, "word": "", "words": [], "inner": None, "pairs": {}}


def test_the_image_has_the_packages_that_are_tested_here() -> None:
    root = Path(__file__).parents[3]
    pinned = [line for line in (root / "tests/standins/requirements.txt").read_text().splitlines() if "==" in line]

    assert set(pinned) <= set((root / "requirements/dev.txt").read_text().splitlines())
