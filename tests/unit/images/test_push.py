"""Credentials go to a real registry over verified TLS only; an image that is there is not pushed again."""

from __future__ import annotations

import pytest

from .conftest import IMAGES, Bench

DOCKER = """
case "$1 $2" in
  "image inspect") echo "${REMOTE%:*}@sha256:abc" ;;
  "info --format") echo "plain.example.com:5000" ;;
  "manifest inspect") echo '"digest": "sha256:abc"' ;;
esac
"""


@pytest.mark.parametrize(
    ("host", "insecure"),
    [
        ("registry.example.com", False),
        ("127.registry.example.com", False),
        ("localhost.example.com:5000", False),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("plain.example.com:5000", True),
    ],
)
def test_only_registries_known_to_be_insecure_are_asked_without_tls(bench: Bench, host: str, insecure: bool) -> None:
    remote = f"{host}/slipway/slipway:1"
    bench.stand_in("docker", f"REMOTE={remote}\n{DOCKER}")

    ended = bench.run(str(IMAGES / "push.sh"), "slipway/slipway:1", remote)

    assert ended.stdout == f"{remote}: present\n"
    assert [("--insecure" in call) for call in bench.calls if call.startswith("docker manifest")] == [insecure]
    assert not [call for call in bench.calls if call.startswith("docker push")]


def test_an_image_that_the_registry_lacks_is_pushed(bench: Bench) -> None:
    bench.stand_in("docker", 'case $1 in image) echo "r.example.com/a@sha256:abc" ;; manifest) exit 1 ;; esac')

    ended = bench.run(str(IMAGES / "push.sh"), "a:1", "r.example.com/a:1")

    assert ended.stdout == "r.example.com/a:1: pushed\n"
    assert bench.calls[-2:] == ["docker tag a:1 r.example.com/a:1", "docker push --quiet r.example.com/a:1"]
