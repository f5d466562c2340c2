"""The request that a model is verified with fits what the model can do, and a failure tells what was said."""

from __future__ import annotations

import asyncio
import base64
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

FILE = Path(__file__).parents[3] / "roles/gateway/files/ask.py"
SCRIPT = FILE.read_text()
FEATURES = {
    "chat": ["TextGeneration"],
    "base": [],
    "embed": ["TextEmbedding"],
    "rank": ["Reranking"],
    "hear": ["SpeechToText"],
    "broken": ["TextGeneration"],
}
ANSWERS = {
    "chat": "chat/completions",
    "base": "completions",
    "embed": "embeddings",
    "rank": "rerank",
    "hear": "audio/transcriptions",
}
"""The one path that each model has."""


async def _models(request: web.Request) -> web.Response:
    features = request.query.getall("feature", [])
    models = {
        name: own
        for name, own in FEATURES.items()
        if (set(features) & set(own) if features else not own or "TextGeneration" in own)
    }
    return web.json_response({"data": [{"id": name, "features": own} for name, own in models.items()]})


async def _answer(request: web.Request) -> web.Response:
    if request.content_type == "multipart/form-data":
        form = await request.post()
        sound = form["file"]
        assert isinstance(sound, web.FileField)
        assert sound.file.read(4) == b"RIFF"
        model = str(form["model"])
    else:
        model = (await request.json())["model"]
    if ANSWERS.get(model) == request.match_info["path"]:
        return web.json_response({})
    return web.Response(status=502 if model == "broken" else 404, text="not here")


async def _ask(*models: str) -> Any:
    application = web.Application()
    application.add_routes([web.get("/v1/models", _models), web.post("/v1/{path:.+}", _answer)])
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        script = SCRIPT.replace("http://slipway-gateway", f"http://{host}:{port}")
        argument = json.dumps({"models": models, "seconds": 60, "secret": ""})
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, argument, stdout=asyncio.subprocess.PIPE, env={}
        )
        output, _unused = await asyncio.wait_for(process.communicate(), 120)
    finally:
        await runner.cleanup()
    return json.loads(output)


def test_each_model_is_asked_for_what_it_can_do() -> None:
    replies = asyncio.run(_ask(*ANSWERS))
    assert {model: (reply["status"], reply["path"]) for model, reply in replies.items()} == {
        model: (200, path) for model, path in ANSWERS.items()
    }


def test_a_failure_tells_the_first_request_and_what_was_said() -> None:
    reply = asyncio.run(_ask("broken", "unknown"))
    assert (reply["broken"]["status"], reply["broken"]["path"]) == (502, "chat/completions")
    assert (reply["unknown"]["status"], reply["unknown"]["said"]) == (404, "not here")


@pytest.mark.parametrize(
    ("rights", "key"),
    [
        ('{"batch": {"models": ["m"]}}', "operator"),
        ('{"batch": {"requestsPerMinute": 5}}', "operator"),
        ('{"batch": {"requestsPerMinute": 5}, "operator": {"selector": "team=a"}}', "batch"),
        ('{"batch": {"ends": "2020-01-01T00:00:00Z"}, "operator": {"owner": "a"}}', "operator"),
        ('{"batch": {"models": ["m"]}, "operator": {"models": ["m"]}}', "batch"),
        ('{"batch": 7, "operator": null}', "batch"),
        ("not JSON", "batch"),
        ("7", "batch"),
        (None, "batch"),
    ],
)
def test_it_uses_a_key_that_may_use_every_model(rights: str | None, key: str) -> None:
    data = {name: base64.b64encode(name.encode()).decode() for name in ("operator", "batch")} | {"an-empty-one": ""}
    annotations = {"slipway.inference/key-rights": rights} if rights is not None else None
    secret = {"metadata": {"annotations": annotations}, "data": data}
    assert runpy.run_path(str(FILE))["usable_key"](secret) == key
