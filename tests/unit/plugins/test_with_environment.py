# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Containers get the operator's variables, and reach what is inside of the cluster without a proxy."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.filter.with_environment import FOLDER, INSIDE, with_environment

PROXY = "http://proxy.example.com:3128"


def env(variables: dict[str, Any], own: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    made = with_environment({"name": "main", "env": own or []}, variables)
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in made["env"]}


@pytest.mark.parametrize("container", [{"name": "main"}, {"name": "main", "env": [{"name": "A", "value": "1"}]}])
def test_without_anything_to_add_a_container_stays_as_it_is(container: dict[str, Any]) -> None:
    assert with_environment(container, {}) == container


@pytest.mark.parametrize(
    ("given", "excepted"),
    [
        ({"HTTPS_PROXY": PROXY}, {"NO_PROXY": INSIDE}),
        ({"https_proxy": PROXY}, {"NO_PROXY": INSIDE}),
        ({"HTTP_PROXY": PROXY, "NO_PROXY": ".example.com"}, {"NO_PROXY": f".example.com,{INSIDE}"}),
        ({"ALL_PROXY": PROXY, "no_proxy": "a"}, {"no_proxy": f"a,{INSIDE}"}),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "*"}, {"NO_PROXY": "*"}),
        ({"NO_PROXY": "a"}, {"NO_PROXY": "a"}),
    ],
)
def test_a_proxy_is_not_asked_for_what_is_inside_of_the_cluster(
    given: dict[str, str], excepted: dict[str, str]
) -> None:
    assert env(given) == given | excepted


def test_a_variable_may_be_read_from_a_secret() -> None:
    source = {"secretKeyRef": {"name": "proxy", "key": "url"}}

    assert env({"HTTPS_PROXY": source, "LEVEL": 3}) == {"HTTPS_PROXY": source, "LEVEL": "3", "NO_PROXY": INSIDE}


def test_what_a_container_says_itself_goes_before() -> None:
    own = [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    made = with_environment({"name": "main", "env": own}, {"POD_NAME": "mine", "A": "1"})

    assert made["env"] == [{"name": "A", "value": "1"}, *own]


def test_authorities_are_mounted_and_named_to_every_client() -> None:
    mount = {"name": "config", "mountPath": "/etc/slipway"}
    made = with_environment({"name": "main", "volumeMounts": [mount]}, {"AWS_CA_BUNDLE": "/mine"}, trust=True)

    assert made["volumeMounts"] == [mount, {"name": "authorities", "mountPath": FOLDER, "readOnly": True}]
    assert {one["name"]: one["value"] for one in made["env"]} == {
        "SSL_CERT_FILE": f"{FOLDER}/ca.crt",
        "REQUESTS_CA_BUNDLE": f"{FOLDER}/ca.crt",
        "AWS_CA_BUNDLE": "/mine",
    }
