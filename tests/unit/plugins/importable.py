# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The checkout as Ansible sees it, for tests that import plugins."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path


def make_importable() -> None:
    """Lets the checkout be imported as ansible_collections.slipway.inference. Under ansible-test it is already.

    By Ansible's own finder, so that templates find the filters in the process that imports them.
    """
    try:
        if importlib.util.find_spec("ansible_collections.slipway.inference.plugins.module_utils") is not None:
            return
    except ModuleNotFoundError:
        pass
    root = Path(tempfile.mkdtemp(prefix="slipway-tests-"))
    (root / "ansible_collections" / "slipway").mkdir(parents=True)
    (root / "ansible_collections" / "slipway" / "inference").symlink_to(Path(__file__).resolve().parents[3])

    from ansible.plugins.loader import init_plugin_loader

    init_plugin_loader([str(root)])
