"""What the role asks the gateway finds every model, whatever it can do."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import get_args

from aiohttp import web

from slipway.apis.kubeai.types import Feature
from slipway.gateway.control import http_api
from slipway.gateway.sources.file import ModelEntry, TableFile
from slipway.serving.routing.route import Route

from ..ansible_files import role_variables

VARS = role_variables(Path(__file__).parents[3] / "roles/gateway")


async def _ask(application: web.Application) -> dict[str, object]:
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        question = VARS["__gateway_question"].replace("slipway-gateway", f"{host}:{port}")
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", question, stdout=asyncio.subprocess.PIPE, env={}
        )
        output, _unused = await asyncio.wait_for(process.communicate(), 120)
    finally:
        await runner.cleanup()
    answer: dict[str, object] = json.loads(output)
    return answer


def test_models_of_every_feature_and_of_none_are_found() -> None:
    models = {feature.lower(): ModelEntry(route=Route(features=(feature,))) for feature in get_args(Feature)}
    table = TableFile({**models, "plain": ModelEntry()}).table()
    assert asyncio.run(_ask(http_api.build_model_list(lambda: table))) == {
        "status": 200,
        "models": sorted([*models, "plain"]),
    }


def test_a_gateway_that_wants_a_key_is_reported_as_such() -> None:
    async def refuse(_unused: web.Request) -> web.Response:
        return web.Response(status=401)

    application = web.Application()
    application.add_routes([web.get("/v1/models", refuse)])
    assert asyncio.run(_ask(application)) == {"status": 401, "models": []}
