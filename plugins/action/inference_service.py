# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs the module of this name without a process of its own, where that is the same."""

from __future__ import annotations

from ansible_collections.slipway.inference.plugins.modules import inference_service
from ansible_collections.slipway.inference.plugins.plugin_utils._in_worker import InWorker


class ActionModule(InWorker):
    main = staticmethod(inference_service.main)
