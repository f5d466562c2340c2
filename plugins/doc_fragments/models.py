# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The option with many models."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  models:
    description:
      - The models. Each is described either by O(models[].name), O(models[].namespace), O(models[].labels),
        O(models[].annotations) and O(models[].spec), or as a whole manifest.
      - An empty list is allowed.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the model. Where a model is served by itself, the gateway serves it under this name.
        type: str
      namespace:
        description: Namespace of the model. Falls back to O(namespace). Models of the whole cluster have none.
        type: str
      labels:
        description: Labels of the model.
        type: dict
      annotations:
        description: Annotations of the model.
        type: dict
      spec:
        description: Spec of the model, as its API defines it. Not needed to delete it.
        type: dict
      api_version:
        description: C(apiVersion) of a manifest. It has to be that of O(api), where that names one.
        type: str
        aliases: [apiVersion]
      kind:
        description:
          - Kind of the model. It has to be one that O(api) has for models.
          - Without it, it is the only one or, for an API with several, the one of the whole cluster where there is no
            namespace, and else the first that has one, such as C(ClusterBaseModel) and C(BaseModel).
        type: str
      metadata:
        description: Metadata of a manifest, with C(name), C(namespace), C(labels), C(annotations).
        type: dict
      status:
        description: Ignored. Allowed so that objects that were read from a cluster are accepted.
        type: dict
"""
