# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A line for each model says where it is, or what is with it."""

from __future__ import annotations

from ansible_collections.slipway.inference.plugins.filter.model_lines import model_lines

MODEL = {
    "kind": "Model",
    "namespace": "chat",
    "name": "m",
    "phase": "Ready",
    "ready": True,
    "url": "http://gateway/v1",
    "message": "",
}


def test_a_ready_model_is_listed_with_its_address() -> None:
    assert model_lines([MODEL]) == ["chat/m: Ready http://gateway/v1"]


def test_an_unready_model_is_listed_with_its_phase_and_message() -> None:
    failed = MODEL | {"kind": "InferenceService", "phase": "Failed", "ready": False, "message": "No room."}

    assert model_lines([failed]) == ["InferenceService chat/m: Failed No room."]
    assert model_lines([MODEL | {"phase": "", "ready": False}]) == ["chat/m: Pending"]
