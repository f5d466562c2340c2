"""A client for the LoRA adapter endpoints of vLLM and SGLang, limited to what the agent needs."""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp
import msgspec

from slipway.decoding import DecodingError, decode_json

LIST_TIMEOUT = aiohttp.ClientTimeout(total=5)
WORK_TIMEOUT = aiohttp.ClientTimeout(total=300)
"""Timeout for loading and unloading. The timeout is long because the engine may copy a large adapter from the disk to
every accelerator."""
LARGEST_ANSWER = 4 << 20
"""Maximum size of a response that is parsed, in bytes."""
LONGEST = 300
"""Maximum number of characters to keep of an engine's error message."""


class EngineApi(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter endpoints of one kind of engine, and patterns of its error messages."""

    prefix: str
    """Path prefix of the endpoints that load and unload adapters, such as ``/v1``; empty: there is none."""
    already: re.Pattern[str]
    """Pattern of the error message for an adapter that is already loaded."""
    absent: re.Pattern[str]
    """Pattern of the error message for an adapter that is not loaded."""
    in_place: Mapping[str, object] = {}
    """Additional fields of a request that replaces a loaded adapter; empty: the engine must unload the adapter
    first."""
    needed: str
    """Arguments and environment variables that the engine must be started with, as error messages show them."""


ENGINE_APIS: Mapping[str, EngineApi] = {
    "vllm": EngineApi(
        prefix="/v1",
        already=re.compile(r"already\b.*\bloaded", re.DOTALL),
        absent=re.compile("cannot be found"),
        in_place={"load_inplace": True},
        needed="--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
    ),
    "sglang": EngineApi(
        prefix="",
        already=re.compile("already exists"),
        absent=re.compile("does not exist"),
        needed="--enable-lora",
    ),
}
"""Engine name -> endpoints and error messages of the engine."""


class EngineDownError(Exception):
    """Nothing listens on the engine's port: the engine is not running, so it has no adapters loaded."""


class EngineUnavailableError(Exception):
    """The engine returned no usable response, so its loaded adapters are unknown."""


class EngineRefusedError(Exception):
    """The engine rejected the request. The message contains the engine's reason or, if it gives none, its status or the
    missing arguments."""


class Engine:
    """A client for one engine, to be used as an async context manager."""

    def __init__(self, url: str, api_key: str = "", api: EngineApi = ENGINE_APIS["vllm"]) -> None:
        self._url, self._api = url.rstrip("/"), api
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def __aenter__(self) -> Engine:
        self._client = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._client.close()

    async def models(self) -> dict[str, str]:
        """Return the path from which the engine loaded each model and adapter, by name. A path is empty if the engine
        does not report it.

        Raise EngineDownError or EngineUnavailableError.
        """
        status, document = await self._call("GET", "/v1/models", None, LIST_TIMEOUT)
        rows = document.get("data") if isinstance(document, dict) else None
        if status != 200 or not isinstance(rows, list):
            raise EngineUnavailableError(f"the engine lists no models: status {status}")
        return {str(row["id"]): str(row.get("root") or "") for row in rows if isinstance(row, dict) and "id" in row}

    async def load(self, name: str, path: str, *, swap: bool) -> None:
        """Load the adapter in the directory ``path`` under the name ``name``. With ``swap``, replace the loaded adapter
        of that name: in one step if the engine supports this, otherwise after unloading it. Without ``swap``, an
        adapter that is already loaded stays.

        Raise EngineDownError, EngineUnavailableError or EngineRefusedError.
        """
        adapter: dict[str, object] = {"lora_name": name, "lora_path": path}
        already = self._api.already
        fault = await self._post("load", {**adapter, **self._api.in_place} if swap else adapter)
        if fault and swap and already.search(fault):
            await self.unload(name)
            fault = await self._post("load", adapter)
        if fault and not already.search(fault):
            raise EngineRefusedError(fault)

    async def unload(self, name: str) -> None:
        """Unload an adapter if it is loaded. Raise EngineDownError, EngineUnavailableError or EngineRefusedError."""
        fault = await self._post("unload", {"lora_name": name})
        if fault and not self._api.absent.search(fault):
            raise EngineRefusedError(fault)

    async def _post(self, verb: str, body: dict[str, object]) -> str:
        """Send a request to load or unload an adapter. Return the reason for a rejection, in the engine's words if it
        gives any, or an empty string on success. Raise EngineDownError or EngineUnavailableError."""
        path = f"{self._api.prefix}/{verb}_lora_adapter"
        status, document = await self._call("POST", path, body, WORK_TIMEOUT)
        if status < 300:
            return ""
        if status == 404 and not message_of(document):
            return f"the engine has no adapter endpoints: start it with {self._api.needed}"
        return (message_of(document) or f"the engine answers {status}")[:LONGEST]

    async def _call(self, method: str, path: str, body: object, limit: aiohttp.ClientTimeout) -> tuple[int, object]:
        try:
            async with self._client.request(method, self._url + path, json=body, timeout=limit) as answer:
                text = await answer.text(errors="replace")
        except aiohttp.ClientConnectorError as error:
            raise EngineDownError("the engine is not running") from error
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise EngineUnavailableError("the engine does not respond") from error
        try:
            return answer.status, decode_json(text, most=LARGEST_ANSWER)
        except DecodingError:
            return answer.status, text


def message_of(document: object) -> str:
    """Return the error message in a response of vLLM, in the current nested or the older flat format, or of SGLang.
    Return an empty string for any other document."""
    if not isinstance(document, dict):
        return ""
    nested = document.get("error")
    message = (nested if isinstance(nested, dict) else document).get("message") or document.get("error_message")
    return message if isinstance(message, str) else ""
