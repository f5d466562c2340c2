# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every module of the collection can do."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
attributes:
  check_mode:
    description: Can run in C(check_mode) and predict what would change without changing it.
  diff_mode:
    description: Shows what has changed, or would change in C(check_mode), when in diff mode.
  idempotent:
    description: A second run with the same arguments changes nothing.
  action_group:
    description: Use C(group/slipway.inference.slipway) in C(module_defaults) to set defaults for this module.
    support: full
    membership:
      - slipway.inference.slipway
  platform:
    description: Operating systems that the module runs on.
    support: full
    platforms: posix
"""
