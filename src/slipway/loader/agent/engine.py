"""vLLM's calls for adapters, as far as the agent needs them."""

from __future__ import annotations

import re

import aiohttp

from slipway.decoding import DecodingError, decode_json

LIST_TIMEOUT = aiohttp.ClientTimeout(total=5)
WORK_TIMEOUT = aiohttp.ClientTimeout(total=300)
"""Seconds: a large adapter is read from the disk and copied to every accelerator."""
ALREADY = re.compile(r"already\b.*\bloaded", re.DOTALL)
ABSENT = "cannot be found"
LARGEST_ANSWER = 4 << 20
"""Bytes of an answer that is read as a document."""
LONGEST = 300
"""Characters of an engine's message that are passed on."""


class GoneError(Exception):
    """Nobody listens: the engine has ended or has not begun, so it has nothing loaded."""


class SilentError(Exception):
    """The engine gives no usable answer now; what it has loaded is not known."""


class RefusedError(Exception):
    """The engine will not do it. The message is the engine's."""


class Engine:
    """One engine, at its base URL."""

    def __init__(self, url: str, api_key: str = "") -> None:
        self._url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def __aenter__(self) -> Engine:
        self._client = aiohttp.ClientSession(headers=self._headers)
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self._client.close()

    async def models(self) -> dict[str, str]:
        """Every model's and adapter's name -> the path that it was loaded from; empty where none is told."""
        status, document = await self._call("GET", "/v1/models", None, LIST_TIMEOUT)
        rows = document.get("data") if isinstance(document, dict) else None
        if status != 200 or not isinstance(rows, list):
            raise SilentError(f"the engine lists no models: status {status}")
        return {str(row["id"]): str(row.get("root") or "") for row in rows if isinstance(row, dict) and "id" in row}

    async def load(self, name: str, path: str, *, swap: bool) -> None:
        """Have ``name`` answered from the files in ``path``. With ``swap`` it takes the place of what has that name: at
        once where the engine can, else after that was unloaded. Raises GoneError, SilentError, RefusedError."""
        wish: dict[str, object] = {"lora_name": name, "lora_path": path}
        fault = await self._post("/v1/load_lora_adapter", {**wish, "load_inplace": True} if swap else wish)
        if fault and swap and ALREADY.search(fault):
            await self.unload(name)
            fault = await self._post("/v1/load_lora_adapter", wish)
        if fault and not ALREADY.search(fault):
            raise RefusedError(fault)

    async def unload(self, name: str) -> None:
        """Raises as ``load``; an adapter that is not there is none to fail for."""
        fault = await self._post("/v1/unload_lora_adapter", {"lora_name": name})
        if fault and ABSENT not in fault:
            raise RefusedError(fault)

    async def _post(self, path: str, body: dict[str, object]) -> str:
        """The engine's reason to refuse; empty when it did as told."""
        status, document = await self._call("POST", path, body, WORK_TIMEOUT)
        if status < 300:
            return ""
        if status == 404 and not message_of(document):
            return (
                "the engine has no calls for adapters: it needs --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"
            )
        return (message_of(document) or f"the engine answers {status}")[:LONGEST]

    async def _call(self, method: str, path: str, body: object, limit: aiohttp.ClientTimeout) -> tuple[int, object]:
        try:
            async with self._client.request(method, self._url + path, json=body, timeout=limit) as answer:
                text = await answer.text(errors="replace")
        except aiohttp.ClientConnectorError as error:
            raise GoneError("the engine is not running") from error
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            raise SilentError("the engine gives no answer") from error
        try:
            return answer.status, decode_json(text, most=LARGEST_ANSWER)
        except DecodingError:
            return answer.status, text


def message_of(document: object) -> str:
    """vLLM's error text, in the shape of today or in the flat one of before; empty for any other document."""
    if not isinstance(document, dict):
        return ""
    nested = document.get("error")
    message = (nested if isinstance(nested, dict) else document).get("message")
    return message if isinstance(message, str) else ""
