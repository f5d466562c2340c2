# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An action that runs ``kubernetes.core.k8s`` in a fork of the Ansible worker if the module would run on the same
machine anyway."""

from __future__ import annotations

from ansible_collections.slipway.inference.plugins.plugin_utils._kubernetes_here import (
    OfKubernetes,
    load_action,
    load_main,
)


class ActionModule(OfKubernetes, load_action("k8s")):  # type: ignore[misc]
    module = "k8s"
    main = load_main("k8s")
