# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubeconfigs for tests."""

from __future__ import annotations

from typing import Any


def kubeconfig(url: str, cluster: dict[str, Any] | None = None, **user: Any) -> dict[str, Any]:
    """A kubeconfig with the contexts ``one``, for this server, and ``two``, the current one, for an unused port."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": url, **(cluster or {})}},
            {"name": "d", "cluster": {"server": "http://127.0.0.1:9"}},
        ],
        "users": [{"name": "u", "user": user or {"token": "a-long-token"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "d", "user": "u"}},
        ],
        "current-context": "two",
    }
