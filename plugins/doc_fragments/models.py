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
      - The models. Each is either a complete manifest, or O(models[].name), O(models[].namespace), O(models[].labels),
        O(models[].annotations) and O(models[].spec).
      - An empty list is allowed.
    type: list
    elements: dict
    suboptions:
      name:
        description: Name of the model. For APIs without separate services, it is also the model ID at the gateway.
        type: str
      namespace:
        description: Namespace of the model. Defaults to O(namespace). Cluster-scoped models have none.
        type: str
      labels:
        description: Labels of the model.
        type: dict
      annotations:
        description: Annotations of the model.
        type: dict
      spec:
        description: Spec of the model according to its API. Not needed to delete it.
        type: dict
      api_version:
        description: C(apiVersion) of a manifest. It must match O(api), if that names an API.
        type: str
        aliases: [apiVersion]
      kind:
        description:
          - Kind of the model. It must be a model kind of O(api).
          - Defaults to the API's only model kind. If it has several, the default with a namespace is the namespaced
            kind, such as C(BaseModel), and otherwise the cluster-scoped kind, such as C(ClusterBaseModel).
        type: str
      metadata:
        description: Metadata of a manifest, with C(name), C(namespace), C(labels), C(annotations).
        type: dict
      status:
        description: Ignored, so objects that were read from a cluster are accepted.
        type: dict
"""
