# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What kubernetes.core says of a refused request, as one sentence."""

from __future__ import annotations

import pytest
from ansible_collections.slipway.inference.plugins.filter.api_message import api_message

HEADERS = "HTTP response headers: HTTPHeaderDict({'Audit-Id': '874777c4', 'Content-Type': 'application/json'})"
TRACE = 'Original traceback: \n  File "/venv/kubernetes/dynamic/client.py", line 54, in inner\n    resp = func(self)\n'
MESSAGE = r"nodes is forbidden: User \"system:serviceaccount:a:b\" cannot list resource \"nodes\""
BODY = f"""HTTP response body: b'{{"kind":"Status","message":"{MESSAGE}","reason":"Forbidden","code":403}}\\n'"""


def test_an_exception_keeps_the_api_servers_message() -> None:
    message = f"Exception '403\nReason: Forbidden\n{HEADERS}\n{BODY}\n{TRACE}' raised while trying to get resource"
    assert api_message(message) == (
        'nodes is forbidden: User "system:serviceaccount:a:b" cannot list resource "nodes".'
    )


def test_without_a_message_status_and_reason_are_reported() -> None:
    assert api_message(f"Exception '502\nReason: Bad Gateway\n{HEADERS}\n'") == (
        "The API server answered 502 Bad Gateway."
    )


def test_a_traceback_is_left_out() -> None:
    message = "Failed to get client due to x\nTraceback (most recent call last):\n  File ..."
    assert api_message(message) == "Failed to get client due to x."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "The account is not allowed to list models.krypton.ai.",
            "The account is not allowed to list models.krypton.ai.",
        ),
        ("", ""),
        (None, ""),
        (" two\nlines ", "two\nlines"),
    ],
)
def test_api_message_keeps_readable_text(text: object, expected: str) -> None:
    assert api_message(text) == expected
