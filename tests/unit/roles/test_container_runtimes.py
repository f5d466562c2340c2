"""The configuration for containerd and CRI-O, for every version of their files, and what stays unchanged in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.slipway.inference.plugins.filter.container_handlers import container_handlers
from ansible_collections.slipway.inference.plugins.filter.containerd_config import containerd_config
from ansible_collections.slipway.inference.plugins.filter.toml_changed import toml_changed
from ansible_collections.slipway.inference.plugins.plugin_utils._runtime_state import cri_plugin

from tests import documents

GOLDEN = Path(__file__).parent / "golden/container_runtimes"
CASES = sorted(path for path in GOLDEN.glob("*.yaml") if not path.name.endswith(".plan.yaml"))
HANDLERS = ["nvidia", "nvidia-cdi"]
BINARY = "/usr/bin/nvidia-container-runtime"
TOP = "/etc/containerd/config.toml"


class Dumper(yaml.SafeDumper):
    """Multi-line texts unchanged, lists indented as yamllint requires."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


Dumper.add_representer(str, _text)


def plan_of(path: Path, **options: Any) -> dict[str, Any]:
    case = documents.read(path)
    chosen = {"handlers": HANDLERS, **case.get("options", {}), **options}
    return containerd_config(case["dump"], top=case["top"], **chosen)


def by_name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", CASES, ids=by_name)
def test_containerd_gets_the_content_of_its_golden_file(path: Path) -> None:
    # The trial has the same files: test_containerd_nodes reads it.
    plan = {key: value for key, value in plan_of(path).items() if key != "trial"}
    text = yaml.dump(plan, Dumper=Dumper, sort_keys=False, width=140)
    golden = path.with_suffix(".plan.yaml")
    if os.environ.get("SLIPWAY_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("path", CASES, ids=by_name)
def test_nothing_is_left_to_do_when_it_was_done(path: Path) -> None:
    case = documents.read(path)
    first = plan_of(path)
    top = next((file["content"] for file in first["files"] if file["path"] == TOP), case["top"])
    second = containerd_config(case["dump"], top=top, **{"handlers": HANDLERS, **case.get("options", {})})

    contents = {file["path"]: file["content"] for file in first["files"]}
    assert all(file["content"] == contents.get(file["path"], top) for file in second["files"])


@pytest.mark.parametrize("path", CASES, ids=by_name)
def test_the_lines_of_the_earlier_configuration_stay(path: Path) -> None:
    """Every line, but for those of another tool's runtime of that name."""
    top = documents.read(path)["top"] or ""
    after = next((file["content"] for file in plan_of(path)["files"] if file["path"] == TOP), top)

    if path.stem not in ("v2-of-another-tool", "v3-imports-others", "v2-default"):
        assert [line for line in top.splitlines() if line.strip() and line not in after.splitlines()] == []


def test_containerd_that_runs_no_pods_is_not_touched() -> None:
    with pytest.raises(AnsibleFilterError, match="disables the plugin cri"):
        containerd_config("version = 2", top='disabled_plugins = ["cri"]')


def test_a_form_that_cannot_be_changed_is_left_alone_and_what_is_missing_is_reported() -> None:
    top = 'version = 2\nplugins = {"io.containerd.grpc.v1.cri" = {enable_cdi = false}}\n'
    with pytest.raises(AnsibleFilterError, match=r"was not changed: its format does not allow.*") as error:
        containerd_config("version = 2", top=top)
    assert f'BinaryName = "{BINARY}"' in str(error.value)


def test_a_file_that_containerd_2_does_not_understand_is_to_be_written_again() -> None:
    with pytest.raises(AnsibleFilterError, match=r"config migrate"):
        containerd_config("version = 3", top='root = "/var/lib/containerd"')


def test_a_broken_file_is_named() -> None:
    with pytest.raises(AnsibleFilterError, match=r"/etc/containerd/config.toml is not TOML"):
        containerd_config("version = 3", top="version =")


CRIO = """
[crio.runtime]
default_runtime = "crun"
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_type = ""
monitor_path = "/usr/libexec/crio/conmon"
allowed_annotations = ["io.containers.trace-syscall"]
"""


def test_the_runtimes_that_are_known_are_reported() -> None:
    assert container_handlers(CRIO) == {"crun": "/usr/libexec/crio/crun"}
    assert container_handlers(documents.read(GOLDEN / "v3-second-run.yaml")["dump"]) == {
        "nvidia": BINARY,
        "nvidia-cdi": BINARY,
        "runc": "",
    }


TOOLKIT = """#accept-nvidia-visible-devices-as-volume-mounts = false
disable-require = false

[nvidia-container-runtime]
#debug = "/var/log/nvidia-container-runtime.log"
log-level = "info"
mode = "auto" # as it comes
runtimes = [
  "docker-runc", # once
  "runc",
]

[nvidia-container-runtime.modes.cdi]
default-kind = "nvidia.com/gpu"
"""


def test_a_changed_value_changes_only_its_line() -> None:
    after = toml_changed(TOOLKIT, {"nvidia-container-runtime": {"mode": "cdi"}})

    assert after == TOOLKIT.replace('mode = "auto" # as it comes', 'mode = "cdi" # as it comes')


@pytest.mark.parametrize(
    ("before", "value", "after"),
    [
        ("b = 1 # keep\n", 2, "b = 2 # keep\n"),
        ("  b = 1#keep\n", 2, "  b = 2#keep\n"),
        ('b = "a # b" # keep # this\n', "c", 'b = "c" # keep # this\n'),
        ('b = [ # first\n  "x", # second\n] # keep\n', ["y"], 'b = ["y"] # keep\n'),
        ('b = """\n# text\n"""  # keep\n', "c", 'b = "c"  # keep\n'),
        ("b = 1\n# next\nc = 1\n", 2, "b = 2\n# next\nc = 1\n"),
    ],
)
def test_a_comment_behind_a_changed_value_stays(before: str, value: object, after: str) -> None:
    assert toml_changed(before, {"b": value}) == after


def test_a_value_that_is_there_changes_nothing() -> None:
    assert toml_changed(TOOLKIT, {"nvidia-container-runtime": {"log-level": "info"}}) is TOOLKIT


def test_new_values_go_where_their_table_is() -> None:
    after = toml_changed(TOOLKIT, {"swarm-resource": "GPU", "nvidia-container-runtime": {"modes": {"csv": {"x": [1]}}}})

    assert after.startswith(TOOLKIT.split("[nvidia", maxsplit=1)[0].rstrip() + '\nswarm-resource = "GPU"\n')
    assert after.endswith("\n[nvidia-container-runtime.modes.csv]\nx = [1]\n")


def test_an_empty_file_gets_all() -> None:
    assert toml_changed("", {"a": True, "b": {"c d": 1.5}}) == 'a = true\n\n[b]\n"c d" = 1.5\n'


@pytest.mark.parametrize("path", [case for case in CASES if not case.stem.startswith("v4")], ids=by_name)
def test_containerd_itself_reads_what_is_written(path: Path, tmp_path: Path) -> None:
    """The installed containerd reports the new runtimes, and its previous one unchanged."""
    containerd = shutil.which("containerd") or pytest.skip("needs containerd")
    version = subprocess.run([containerd, "--version"], capture_output=True, text=True, check=True).stdout
    top = documents.read(path)["top"]
    if top is None or not path.stem.startswith(("v1", "v2") if " 1." in version else ("v2", "v3")):
        pytest.skip("is for another containerd")
    file = tmp_path / "config.toml"
    file.write_text(top.replace("/etc/containerd", str(tmp_path)))
    for imported in ("registries.toml", "proxies.toml"):
        (tmp_path / imported).write_text("version = 2\n")
    before = dump(containerd, file)
    for written in containerd_config(before, top=file.read_text(), handlers=HANDLERS, path=str(file))["files"]:
        at = tmp_path / written["path"].replace("/etc/containerd", str(tmp_path))
        at.parent.mkdir(exist_ok=True)
        at.write_text(written["content"].replace("/etc/containerd/conf.d", str(tmp_path / "conf.d")))
    after = dump(containerd, file)

    assert container_handlers(after) == {"nvidia": BINARY, "nvidia-cdi": BINARY, "runc": ""}
    assert runc_of(after) == runc_of(before)


def dump(containerd: str, file: Path) -> str:
    command = [containerd, "--config", str(file), "config", "dump"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def runc_of(dumped: str) -> Any:
    """What it says of itself; the rest is containerd's default, which an older one shows in several ways."""
    config = tomllib.loads(dumped)
    runc = config["plugins"][cri_plugin(config["version"])]["containerd"]["runtimes"]["runc"]
    options = {key: value for key, value in runc["options"].items() if value}
    return runc["runtime_type"], runc["base_runtime_spec"], options
