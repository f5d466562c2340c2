"""Adapters that are already in the engine's container are not downloaded; the engine gets their paths."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from slipway.loader.agent.plan import Version
from slipway.serving.wire.agent import Adapter

from .conftest import Service, write
from .sglang import Engine
from .test_agent import Sidecar

Start = Callable[[web.Application], Service]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def loras(tmp_path: Path) -> Path:
    """Two adapters, as a volume of the engine's container has them."""
    for name in ("sql", "law"):
        write(tmp_path / "loras" / name, {"adapter_config.json": b"{}"})
    return tmp_path / "loras"


@pytest.fixture
async def sidecar(tmp_path: Path, start: Start, engine: Engine) -> AsyncIterator[Sidecar]:
    folder = tmp_path / "adapters"
    folder.mkdir()
    new_sidecar = Sidecar(folder, start(engine.application()).url, {}, kind="sglang")
    await new_sidecar.start()
    yield new_sidecar
    await new_sidecar.stop()


async def test_the_engine_gets_the_path_in_its_container(sidecar: Sidecar, engine: Engine, loras: Path) -> None:
    sql = Adapter("sql", f"file://{loras}/sql")
    await sidecar.request(sql)
    await sidecar.settle()
    assert engine.adapters == {"sql": f"{loras}/sql"}
    assert await sidecar.state() == {"sql": ("Loaded", sql.digest)}
    assert sidecar.store.size(Version("sql", sql.digest)) < 1000


async def test_a_name_with_a_colon_is_a_folder_like_any_other(sidecar: Sidecar, engine: Engine, loras: Path) -> None:
    await sidecar.request(Adapter("chat:sql", f"file://{loras}/sql"))
    await sidecar.settle()
    assert list(engine.adapters) == ["chat:sql"]


async def test_another_path_takes_the_place_of_the_first_one(sidecar: Sidecar, engine: Engine, loras: Path) -> None:
    law = Adapter("one", f"file://{loras}/law")
    await sidecar.request(Adapter("one", f"file://{loras}/sql"))
    await sidecar.settle()
    await sidecar.request(law)
    await sidecar.settle()
    assert engine.adapters == {"one": f"{loras}/law"}
    assert [verb for verb, _name in engine.calls] == ["load", "load", "unload", "load"]
    assert sidecar.versions() == {Version("one", law.digest)}


async def test_an_adapter_that_is_no_longer_desired_is_unloaded_and_stays_on_its_volume(
    sidecar: Sidecar, engine: Engine, loras: Path
) -> None:
    await sidecar.request(Adapter("sql", f"file://{loras}/sql"))
    await sidecar.settle()
    await sidecar.request()
    await sidecar.settle()
    assert engine.adapters == {}
    assert sidecar.versions() == set()
    assert (loras / "sql/adapter_config.json").is_file()


async def test_an_engine_that_has_let_go_already_is_none_to_fail_for(sidecar: Sidecar, engine: Engine) -> None:
    await sidecar.agent._engine.unload("sql")
    assert engine.calls == [("unload", "sql")]


async def test_a_restarted_engine_gets_it_again(sidecar: Sidecar, engine: Engine, loras: Path) -> None:
    await sidecar.request(Adapter("sql", f"file://{loras}/sql"))
    await sidecar.settle()
    engine.adapters.clear()
    await sidecar.restart()
    await sidecar.settle()
    assert engine.adapters == {"sql": f"{loras}/sql"}


async def test_the_engine_s_reason_is_reported(sidecar: Sidecar, loras: Path) -> None:
    await sidecar.request(Adapter("sql", f"file://{loras}/none"))
    await sidecar.settle()
    assert await sidecar.state() == {"sql": ("Failed", "")}
    assert "no adapter_config.json" in await sidecar.message()


async def test_an_adapter_that_the_engine_started_with_stays(sidecar: Sidecar, engine: Engine, loras: Path) -> None:
    engine.adapters["law"] = f"{loras}/law"
    await sidecar.request(Adapter("sql", f"file://{loras}/sql"))
    await sidecar.settle()
    await sidecar.request()
    await sidecar.settle()
    assert engine.adapters == {"law": f"{loras}/law"}


async def test_web_addresses_are_still_refused(sidecar: Sidecar) -> None:
    body = msgspec.json.encode([Adapter("sql", "http://169.254.169.254/sql")])
    status, text = await sidecar.put(body, sidecar.proof("PUT", "/v1/adapters", body))
    assert status == 400, text
