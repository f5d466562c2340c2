"""SGLang as far as adapters go: no /v1 before its endpoints, results in place of errors, no replacement in place."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web


@dataclass
class Engine:
    adapters: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    """(verb, adapter's name)."""

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/load_lora_adapter", self._load)
        app.router.add_post("/unload_lora_adapter", self._unload)
        return app

    async def _models(self, _request: web.Request) -> web.Response:
        rows = [{"id": "base", "root": "base", "parent": None}]
        rows += [{"id": name, "root": path, "parent": "base"} for name, path in self.adapters.items()]
        return web.json_response({"object": "list", "data": rows})

    async def _load(self, request: web.Request) -> web.Response:
        body = await request.json()
        name, path = body["lora_name"], body["lora_path"]
        self.calls.append(("load", name))
        if name in self.adapters:
            return self._result(f"LoRA with name {name} already exists. Loaded LoRAs: {sorted(self.adapters)}")
        if not (Path(path) / "adapter_config.json").is_file():
            return self._result(f"Failed to load LoRA adapter {name}: no adapter_config.json in {path}")
        self.adapters[name] = path
        return self._result()

    async def _unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        self.calls.append(("unload", name))
        if name not in self.adapters:
            return self._result(f"LoRA with name {name} does not exist. Loaded LoRAs: {sorted(self.adapters)}")
        del self.adapters[name]
        return self._result()

    def _result(self, fault: str = "") -> web.Response:
        body = {"success": not fault, "error_message": fault, "loaded_adapters": self.adapters}
        return web.json_response(body, status=400 if fault else 200)
