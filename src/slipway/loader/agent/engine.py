"""Client for the LoRA adapter endpoints of vLLM and SGLang, as far as the agent needs them."""

from __future__ import annotations

import re
from collections.abc import Mapping

import aiohttp
import msgspec

from slipway.decoding import DecodingError, decode_json

LIST_TIMEOUT = aiohttp.ClientTimeout(total=5)
WORK_TIMEOUT = aiohttp.ClientTimeout(total=300)
"""Seconds: a large adapter is read from the disk and copied to every accelerator."""
LARGEST_ANSWER = 4 << 20
"""Bytes of an answer that is read as a document."""
LONGEST = 300
"""Characters of an engine's message that are passed on."""


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """The names of an engine's endpoints, and its messages."""

    prefix: str
    """Of the endpoints' paths."""
    already: re.Pattern[str]
    """Says that an adapter of the name is loaded."""
    absent: re.Pattern[str]
    """Says that none is."""
    in_place: Mapping[str, object] = {}
    """Fields of a load that takes the place of the adapter of that name; none: it has to be unloaded first."""
    needed: str
    """What the engine has to be started with."""


WORDS: Mapping[str, Words] = {
    "vllm": Words(
        prefix="/v1",
        already=re.compile(r"already\b.*\bloaded", re.DOTALL),
        absent=re.compile("cannot be found"),
        in_place={"load_inplace": True},
        needed="--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True",
    ),
    "sglang": Words(
        prefix="",
        already=re.compile("already exists"),
        absent=re.compile("does not exist"),
        needed="--enable-lora",
    ),
}
"""By the engine's name."""


class EngineDownError(Exception):
    """Nothing listens: the engine is not running, so it has nothing loaded."""


class EngineUnavailableError(Exception):
    """The engine returned no usable response, so its loaded adapters are unknown."""


class EngineRefusedError(Exception):
    """The engine refused. The message is the engine's."""


class Engine:
    """One engine, at its base URL."""

    def __init__(self, url: str, api_key: str = "", words: Words = WORDS["vllm"]) -> None:
        self._url, self._words = url.rstrip("/"), words
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def __aenter__(self) -> Engine:
        self._client = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._client.close()

    async def models(self) -> dict[str, str]:
        """Name of each model and adapter -> the path that it was loaded from, or empty if unknown.

        Raises EngineDownError, EngineUnavailableError.
        """
        status, document = await self._call("GET", "/v1/models", None, LIST_TIMEOUT)
        rows = document.get("data") if isinstance(document, dict) else None
        if status != 200 or not isinstance(rows, list):
            raise EngineUnavailableError(f"the engine lists no models: status {status}")
        return {str(row["id"]): str(row.get("root") or "") for row in rows if isinstance(row, dict) and "id" in row}

    async def load(self, name: str, path: str, *, swap: bool) -> None:
        """Loads the files in ``path`` as ``name``. With ``swap`` it replaces the adapter of that name: at once where
        the engine can, else after unloading it.

        Raises EngineDownError, EngineUnavailableError, EngineRefusedError.
        """
        adapter: dict[str, object] = {"lora_name": name, "lora_path": path}
        already = self._words.already
        fault = await self._post("load", {**adapter, **self._words.in_place} if swap else adapter)
        if fault and swap and already.search(fault):
            await self.unload(name)
            fault = await self._post("load", adapter)
        if fault and not already.search(fault):
            raise EngineRefusedError(fault)

    async def unload(self, name: str) -> None:
        """Unloads an adapter, if it is there. Raises as ``load`` does."""
        fault = await self._post("unload", {"lora_name": name})
        if fault and not self._words.absent.search(fault):
            raise EngineRefusedError(fault)

    async def _post(self, verb: str, body: dict[str, object]) -> str:
        """The engine's reason to refuse; empty on success. Raises EngineDownError, EngineUnavailableError."""
        path = f"{self._words.prefix}/{verb}_lora_adapter"
        status, document = await self._call("POST", path, body, WORK_TIMEOUT)
        if status < 300:
            return ""
        if status == 404 and not message_of(document):
            return f"the engine has no adapter endpoints: start it with {self._words.needed}"
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
    """The engine's error text: vLLM's, in the shape of today or in the flat one of before, or SGLang's; empty for any
    other document."""
    if not isinstance(document, dict):
        return ""
    nested = document.get("error")
    message = (nested if isinstance(nested, dict) else document).get("message") or document.get("error_message")
    return message if isinstance(message, str) else ""
