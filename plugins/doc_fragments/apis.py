# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option that names the serving API, with the choices that there are."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.slipway.inference.plugins.module_utils._apis import AUTO, BENCHMARKS, MODELS, SERVICES, Kind


def _option(kinds: Mapping[str, Kind], *, auto: str = "") -> str:
    """``auto``: the option that has manifests, where these may say the API."""
    first = next(iter(kinds))
    versions = ", ".join(f"V({api}) is C({kind.api_version})" for api, kind in kinds.items())
    auto_text = f"""
      - V({AUTO}) uses the C(apiVersion) of each manifest in O({auto}), so one task can use several APIs. Manifests
        without it are matched by a kind that only one API has, such as C(BaseModel). Otherwise V({first})."""
    return rf"""
options:
  api:
    description:
      - Serving API of the resources.
      - {versions}.{auto_text if auto else ""}
    type: str
    choices: [{", ".join([AUTO, *sorted(kinds)] if auto else sorted(kinds))}]
    default: {AUTO if auto else first}
"""


# Names of its parts are no names of fragments: "apis.models" would be taken for the fragment "models".
class ModuleDocFragment:
    # Annotated: of plain assignments ansible-test wants the text itself.
    OF_MODELS: str = _option(MODELS)
    OF_MANIFESTS: str = _option(MODELS, auto="models")
    OF_SERVICES: str = _option(SERVICES)
    OF_BENCHMARKS: str = _option(BENCHMARKS)
