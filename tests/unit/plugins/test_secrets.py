# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets are found by their names and masked where they stand."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.slipway.inference.plugins.module_utils._secrets import MASK, mask, secrets_in


@pytest.mark.parametrize(
    "name",
    [
        "HUGGINGFACE_HUB_TOKEN",
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "OPENAI_API_KEY",
        "MY_KEY",
        "BASIC_AUTH",
    ],
)
def test_variables_that_look_secret_are_masked(name: str) -> None:
    value = {"env": [{"name": name, "value": "s3cr3t"}]}
    assert mask(value) == {"env": [{"name": name, "value": MASK}]}
    assert secrets_in(value) == ["s3cr3t"]


def test_variables_may_come_as_a_dictionary() -> None:
    assert mask({"env": {"BASIC_AUTH": "s3cr3t", "OMP_NUM_THREADS": "4"}}) == {
        "env": {"BASIC_AUTH": MASK, "OMP_NUM_THREADS": "4"}
    }


@pytest.mark.parametrize(
    "value",
    [
        {"env": [{"name": "OMP_NUM_THREADS", "value": "4"}]},
        {"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}]},
        {"env": [{"name": "HF_TOKEN", "value": ""}]},
        {"envFrom": [{"secretRef": {"name": "hf-token"}}]},
        {"imagePullSecrets": [{"name": "registry"}]},
        {"secretName": "x", "tokenizer": "org/repo", "maxTokens": 5, "keyboard": "y"},
        {"args": ["--ctx-size", "4096", "--api-key-file", "/keys", "--tokenizer", "x"]},
    ],
)
def test_values_without_secrets_stay_unmasked(value: dict[str, Any]) -> None:
    assert mask(value) == value
    assert secrets_in(value) == []


def test_arguments_are_masked() -> None:
    assert mask(["--api-key", "s3cr3t", "--hf-token=s3cr3t", "-c", "1"]) == [
        "--api-key",
        MASK,
        f"--hf-token={MASK}",
        "-c",
        "1",
    ]


@pytest.mark.parametrize("flag", ["-hft", "--hft", "--hf-token", "--HF-TOKEN", "--hf_token", "--api_key"])
def test_every_spelling_of_a_secret_argument_is_masked(flag: str) -> None:
    assert mask([flag, "s3cr3t", "-c"]) == [flag, MASK, "-c"]
    assert mask([f"{flag}=s3cr3t"]) == [f"{flag}={MASK}"]


def test_users_and_passwords_in_addresses_are_masked() -> None:
    value = {"proxy": "http://user:s3%2Fcr3t@proxy:3128"}
    assert mask(value) == {"proxy": f"http://{MASK}@proxy:3128"}
    assert {"s3%2Fcr3t", "s3/cr3t"} <= set(secrets_in(value))
    assert mask("http://proxy:3128/a@b") == "http://proxy:3128/a@b"


def test_fields_that_hold_a_secret_are_masked() -> None:
    assert mask({"auth": {"apiKey": "s3cr3t", "password": "s3cr3t"}}) == {"auth": {"apiKey": MASK, "password": MASK}}


def test_the_last_applied_annotation_is_omitted() -> None:
    assert mask({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "s3cr3t", "a": "b"}}) == {
        "annotations": {"a": "b"}
    }


def test_the_signature_of_an_address_is_masked_and_the_rest_stays() -> None:
    signed = "https://store.example/x.gguf?X-Amz-Expires=60&X-Amz-Signature=s3cr3t&X-Amz-Security-Token=t0k3n#end"
    assert mask({"spec": {"source": signed}}) == {
        "spec": {
            "source": "https://store.example/x.gguf?X-Amz-Expires=60"
            f"&X-Amz-Signature={MASK}&X-Amz-Security-Token={MASK}#end"
        }
    }
    assert secrets_in(signed) == ["s3cr3t", "t0k3n"]
    assert mask("https://store.example/x.gguf?sv=2024&sig=s3cr3t") == f"https://store.example/x.gguf?sv=2024&sig={MASK}"
    assert mask("hf://acme/tiny?design=x&model=sig") == "hf://acme/tiny?design=x&model=sig"
