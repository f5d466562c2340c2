# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: api_message
short_description: Explain in one sentence why a kubernetes.core module failed
version_added: 0.5.0
author:
  - The slipway.inference authors (@slipway)
description:
  - When a request is rejected, these modules return a Python exception with headers and traceback. The filter extracts
    the API server's message.
  - Other texts are returned without their traceback.
options:
  _input:
    description: C(msg) of the failed task.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Report why the nodes cannot be listed
  ansible.builtin.debug:
    msg: "{{ nodes.msg | default('') | slipway.inference.api_message }}"
"""

RETURN = r"""
_value:
  description: The message. Empty if there is none.
  type: str
"""

import re
from typing import Any

_BODY = re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)*)"')
_REASON = re.compile(r"^Reason: (.+)$", re.MULTILINE)
_STATUS = re.compile(r"\b([1-5]\d\d)\s*\n\s*Reason: ")
# The beginning of the part of an exception's text that is not for people.
_NOISE = re.compile(
    r"\s*(?:HTTP response headers:|Original traceback:|Traceback \(most recent call last\)|HTTPHeaderDict).*", re.DOTALL
)
_ESCAPED = re.compile(r'\\+(["/\\])')


def api_message(error: Any) -> str:
    text = "" if error is None else str(error)
    exceptional = "HTTP response" in text or "Traceback" in text or "traceback" in text
    if not exceptional:
        return text.strip()
    message = _BODY.search(text)
    if message:
        return _sentence(_ESCAPED.sub(r"\1", message.group(1)))
    reason, status = _REASON.search(text), _STATUS.search(text)
    if reason:
        return _sentence(f"The API server answered {status.group(1) + ' ' if status else ''}{reason.group(1)}")
    return _sentence(_NOISE.sub("", text))


def _sentence(text: str) -> str:
    plain = " ".join(text.split())
    return plain if not plain or plain.endswith((".", "!", "?")) else f"{plain}."


class FilterModule:
    """Entry point from which Ansible loads the filter."""

    def filters(self) -> dict[str, Any]:
        return {"api_message": api_message}
