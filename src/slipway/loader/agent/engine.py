"""Client for the LoRA adapter endpoints of vLLM and SGLang, limited to what the agent needs."""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp
import msgspec

from slipway.decoding import DecodingError, decode_json

LIST_TIMEOUT = aiohttp.ClientTimeout(total=5)
WORK_TIMEOUT = aiohttp.ClientTimeout(total=300)
"""Timeout for requests that read a large adapter from the disk and copy it to every accelerator."""
LARGEST_ANSWER = 4 << 20
"""Maximum size of a response that is parsed, in bytes."""
LONGEST = 300
"""Maximum length of an engine's message that is passed on, in characters."""


class EngineApi(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoints of an engine, and its messages."""

    prefix: str
    """Prefix of the endpoints' paths."""
    already: re.Pattern[str]
    """Matches the message that an adapter of the name is already loaded."""
    absent: re.Pattern[str]
    """Matches the message that no adapter of the name is loaded."""
    in_place: Mapping[str, object] = {}
    """Fields of a load request that replaces the adapter of the same name; empty: it must be unloaded first."""
    needed: str
    """Arguments and variables with which the engine must be started."""


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
"""Engine name -> its endpoints and messages."""


class EngineDownError(Exception):
    """Nothing listens on the port: the engine is not running, so nothing is loaded."""


class EngineUnavailableError(Exception):
    """The engine returned no usable response, so its loaded adapters are unknown."""


class EngineRefusedError(Exception):
    """The engine rejected the request. The message is the engine's."""


class Engine:
    """One engine, at its base URL."""

    def __init__(self, url: str, api_key: str = "", api: EngineApi = ENGINE_APIS["vllm"]) -> None:
        self._url, self._api = url.rstrip("/"), api
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def __aenter__(self) -> Engine:
        self._client = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._client.close()

    async def models(self) -> dict[str, str]:
        """Returns the name of each model and adapter -> the path from which it was loaded, or empty if unknown.

        Raises EngineDownError or EngineUnavailableError.
        """
        status, document = await self._call("GET", "/v1/models", None, LIST_TIMEOUT)
        rows = document.get("data") if isinstance(document, dict) else None
        if status != 200 or not isinstance(rows, list):
            raise EngineUnavailableError(f"the engine lists no models: status {status}")
        return {str(row["id"]): str(row.get("root") or "") for row in rows if isinstance(row, dict) and "id" in row}

    async def load(self, name: str, path: str, *, swap: bool) -> None:
        """Loads the files in ``path`` as ``name``. With ``swap`` it replaces the adapter of the same name: in one step
        if the engine supports that, otherwise after unloading it.

        Raises EngineDownError, EngineUnavailableError or EngineRefusedError.
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
        """Unloads an adapter if it is loaded. Raises as ``load`` does."""
        fault = await self._post("unload", {"lora_name": name})
        if fault and not self._api.absent.search(fault):
            raise EngineRefusedError(fault)

    async def _post(self, verb: str, body: dict[str, object]) -> str:
        """Sends a request. Returns the engine's reason for a rejection; empty on success. Raises EngineDownError or
        EngineUnavailableError."""
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
    """Returns the error text from a response: vLLM's, in its current nested or older flat format, or SGLang's; empty
    for any other document."""
    if not isinstance(document, dict):
        return ""
    nested = document.get("error")
    message = (nested if isinstance(nested, dict) else document).get("message") or document.get("error_message")
    return message if isinstance(message, str) else ""
