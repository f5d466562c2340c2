"""vLLM as far as adapters go: both shapes of its errors, with and without replacement in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web


@dataclass
class Engine:
    flat: bool = False
    """Errors as before v0.11."""
    in_place: bool = True
    tells_paths: bool = True
    refuses: str = ""
    adapters: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(verb, adapter's name)."""

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/load_lora_adapter", self._load)
        app.router.add_post("/v1/unload_lora_adapter", self._unload)
        return app

    def restart(self) -> None:
        self.adapters.clear()

    async def _models(self, _request: web.Request) -> web.Response:
        rows = [{"id": "base", "root": "org/base", "parent": None}]
        rows += [
            {"id": name, "parent": "base", **({"root": path} if self.tells_paths else {})}
            for name, path in self.adapters.items()
        ]
        return web.json_response({"object": "list", "data": rows})

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        name, path = body["lora_name"], body["lora_path"]
        replaces = self.in_place and body.get("load_inplace", False)
        self.calls.append(("replace" if replaces else "load", name))
        if self.refuses:
            return self._error(400, self.refuses, "BadRequestError")
        if name in self.adapters and not replaces:
            return self._error(400, f"The lora adapter '{name}' has already been loaded.", "InvalidUserInput")
        if not (Path(path) / "adapter_config.json").is_file():
            return self._error(404, f"No adapter found for {path}", "NotFoundError")
        self.adapters[name] = path
        return web.Response(text=f"Success: LoRA adapter '{name}' added successfully.")

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        self.calls.append(("unload", name))
        if name not in self.adapters:
            return self._error(404, f"The lora adapter '{name}' cannot be found.", "NotFoundError")
        del self.adapters[name]
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")

    def _error(self, status: int, message: str, kind: str) -> web.Response:
        error: dict[str, Any] = {"message": message, "type": kind, "code": status}
        return web.json_response({"object": "error", **error} if self.flat else {"error": error}, status=status)
