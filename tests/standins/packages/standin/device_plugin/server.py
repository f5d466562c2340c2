"""A plugin for each resource: its socket, its registration, and the news of its devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from . import api
from .hardware import Devices, visible
from .wire import Message, Shape, decode, encode

SECONDS = 10
"""For the kubelet to take a registration."""


class Plugin:
    """Serves one resource until it is stopped. ``tell``: gives word of devices that have changed."""

    def __init__(self, folder: Path, resource: str, devices: Devices, *, variable: str, only_one: bool) -> None:
        self.resource, self.devices = resource, devices
        self._folder, self._variable, self._only_one = folder, variable, only_one
        self._endpoint = "standin-" + resource.replace("/", "-") + ".sock"
        self._news = threading.Condition()
        self._stopped = False
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self._handlers(),))

    def start(self) -> None:
        (self._folder / self._endpoint).unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{self._folder / self._endpoint}")
        self._server.start()
        self._register()

    def tell(self, devices: Devices) -> None:
        with self._news:
            self.devices = devices
            self._news.notify_all()

    def stop(self) -> None:
        with self._news:
            self._stopped = True
            self._news.notify_all()
        self._server.stop(grace=1).wait()
        (self._folder / self._endpoint).unlink(missing_ok=True)

    def _register(self) -> None:
        registration = {
            "version": api.VERSION,
            "endpoint": self._endpoint,
            "resource_name": self.resource,
            "options": {"pre_start_required": False},
        }
        with grpc.insecure_channel(f"unix://{self._folder / 'kubelet.sock'}") as channel:
            call = channel.unary_unary(
                api.REGISTER,
                request_serializer=partial(encode, shape=api.REGISTRATION),
                response_deserializer=partial(decode, shape=api.EMPTY),
            )
            call(registration, timeout=SECONDS, wait_for_ready=True)

    def _handlers(self) -> grpc.GenericRpcHandler:
        def plain(behaviour: Callable[..., Message], request_shape: Shape, answered: Shape) -> grpc.RpcMethodHandler:
            return grpc.unary_unary_rpc_method_handler(
                behaviour, partial(decode, shape=request_shape), partial(encode, shape=answered)
            )

        watched = grpc.unary_stream_rpc_method_handler(
            self._watch, partial(decode, shape=api.EMPTY), partial(encode, shape=api.DEVICES)
        )
        return grpc.method_handlers_generic_handler(
            api.SERVICE,
            {
                "GetDevicePluginOptions": plain(lambda _asked, _context: {}, api.EMPTY, api.OPTIONS),
                "ListAndWatch": watched,
                "Allocate": plain(self._allocate, api.ALLOCATION, api.GRANTS),
                "PreStartContainer": plain(lambda _asked, _context: {}, api.EMPTY, api.EMPTY),
            },
        )

    def _watch(self, _asked: Message, context: Any) -> Iterator[Message]:
        sent_devices: Devices | None = None
        while context.is_active():
            with self._news:
                if sent_devices == self.devices and not self._stopped:
                    self._news.wait(timeout=1)
                if self._stopped:
                    return
                changed, sent_devices = sent_devices != self.devices, self.devices
            if changed:
                yield {"devices": [{"ID": one, "health": health} for one, health in sent_devices.items()]}

    def _allocate(self, request: Message, context: Any) -> Message:
        containers = request["container_requests"]
        for container in containers:
            count = len(container["devices_ids"])
            if self._only_one and count > 1:
                context.abort(
                    grpc.StatusCode.UNKNOWN,
                    f"request for '{self.resource}: {count}' too large: maximum request size for shared resources is 1",
                )
        granted = [{"envs": {self._variable: visible(container["devices_ids"])}} for container in containers]
        return {"container_responses": granted}
