# Copyright: (c) 2026, The slipway.inference authors
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Private to this collection: it may change in any release.
# Written by `slipway apis` from src/slipway/apis; do not edit.

"""JSON Schema of kubeai_config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEMA: Mapping[str, Any] = {
    "$ref": "#/$defs/SystemConfig",
    "$defs": {
        "SystemConfig": {
            "title": "SystemConfig",
            "type": "object",
            "properties": {
                "secretNames": {"$ref": "#/$defs/SecretNames"},
                "modelServers": {
                    "propertyNames": {"enum": ["OLlama", "VLLM", "FasterWhisper", "Infinity", "SGLang", "LlamaCpp"]},
                    "type": "object",
                    "additionalProperties": {"$ref": "#/$defs/ModelServer"},
                },
                "modelLoading": {"$ref": "#/$defs/ModelLoading"},
                "resourceProfiles": {
                    "propertyNames": {"description": "a name without ':'", "pattern": "^([^:\\s]+)$"},
                    "type": "object",
                    "additionalProperties": {"$ref": "#/$defs/ResourceProfile"},
                },
                "cacheProfiles": {
                    "propertyNames": {
                        "description": "a name of lower-case letters, digits, '-' and '.'",
                        "pattern": "^([a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                    },
                    "type": "object",
                    "additionalProperties": {"$ref": "#/$defs/CacheProfile"},
                },
                "modelServerPods": {"$ref": "#/$defs/ModelServerPods"},
                "modelRollouts": {"$ref": "#/$defs/ModelRollouts"},
                "modelAutoscaling": {"$ref": "#/$defs/ModelAutoscaling"},
                "messaging": {"deprecated": True},
                "leaderElection": {"deprecated": True},
                "metricsAddr": {"deprecated": True},
                "healthAddress": {"deprecated": True},
                "allowPodAddressOverride": {"deprecated": True},
                "fixedSelfMetricAddrs": {"deprecated": True},
                "distributedInference": {"deprecated": True},
                "proxy": {"deprecated": True},
                "gatewayAPI": {"deprecated": True},
            },
            "additionalProperties": False,
        },
        "SecretNames": {
            "title": "SecretNames",
            "type": "object",
            "properties": {
                "alibaba": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^(|[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
                "aws": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^(|[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
                "gcp": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^(|[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
                "huggingface": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^(|[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
                "oci": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^(|[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
            },
            "required": [],
            "additionalProperties": False,
        },
        "ModelServer": {
            "title": "ModelServer",
            "type": "object",
            "properties": {
                "images": {
                    "propertyNames": {"description": "a name", "pattern": "^(\\S+)$"},
                    "type": "object",
                    "additionalProperties": {"type": "string", "description": "an image", "pattern": "^(\\S+)$"},
                },
            },
            "required": ["images"],
            "additionalProperties": False,
        },
        "ModelLoading": {
            "title": "ModelLoading",
            "type": "object",
            "properties": {"image": {"type": "string"}},
            "required": [],
            "additionalProperties": False,
        },
        "ResourceProfile": {
            "title": "ResourceProfile",
            "type": "object",
            "properties": {
                "imageName": {"type": "string"},
                "requests": {
                    "propertyNames": {"description": "a name", "pattern": "^(\\S+)$"},
                    "type": "object",
                    "additionalProperties": {
                        "type": "string",
                        "description": "a quantity such as 2, 500m or 24Gi",
                        "pattern": "^((\\d+\\.?\\d*|\\.\\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\\d{1,2})?)$",
                    },
                },
                "limits": {
                    "propertyNames": {"description": "a name", "pattern": "^(\\S+)$"},
                    "type": "object",
                    "additionalProperties": {
                        "type": "string",
                        "description": "a quantity such as 2, 500m or 24Gi",
                        "pattern": "^((\\d+\\.?\\d*|\\.\\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\\d{1,2})?)$",
                    },
                },
                "nodeSelector": {
                    "propertyNames": {"description": "a name", "pattern": "^(\\S+)$"},
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                },
                "affinity": {"type": "object"},
                "tolerations": {"type": "array", "items": {"type": "object"}},
                "schedulerName": {"type": "string"},
                "runtimeClassName": {"type": "string"},
                "dra": {
                    "anyOf": [
                        {
                            "required": ["resourceClaimTemplateName"],
                            "properties": {"resourceClaimTemplateName": {"minLength": 1}},
                        },
                        {"required": ["resourceClaimName"], "properties": {"resourceClaimName": {"minLength": 1}}},
                    ],
                    "$ref": "#/$defs/DeviceClaim",
                },
            },
            "required": [],
            "additionalProperties": False,
        },
        "DeviceClaim": {
            "title": "DeviceClaim",
            "type": "object",
            "properties": {
                "resourceClaimTemplateName": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^(|[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
                "resourceClaimName": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^(|[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
                "claimName": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^([a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
                "claimRequest": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^(|[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
            },
            "required": [],
            "additionalProperties": False,
        },
        "CacheProfile": {
            "title": "CacheProfile",
            "type": "object",
            "properties": {
                "sharedFilesystem": {
                    "anyOf": [
                        {"required": ["storageClassName"], "properties": {"storageClassName": {"minLength": 1}}},
                        {
                            "required": ["persistentVolumeName"],
                            "properties": {"persistentVolumeName": {"minLength": 1}},
                        },
                    ],
                    "$ref": "#/$defs/SharedFilesystem",
                },
            },
            "required": ["sharedFilesystem"],
            "additionalProperties": False,
        },
        "SharedFilesystem": {
            "title": "SharedFilesystem",
            "type": "object",
            "properties": {
                "storageClassName": {"type": "string"},
                "persistentVolumeName": {"type": "string"},
                "storageSize": {
                    "type": "string",
                    "description": "a quantity such as 2, 500m or 24Gi",
                    "pattern": "^((\\d+\\.?\\d*|\\.\\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\\d{1,2})?)$",
                },
            },
            "required": [],
            "additionalProperties": False,
        },
        "ModelServerPods": {
            "title": "ModelServerPods",
            "type": "object",
            "properties": {
                "serviceAccountName": {"type": "string"},
                "podSecurityContext": {"type": "object"},
                "securityContext": {"type": "object"},
                "imagePullSecrets": {"type": "array", "items": {"$ref": "#/$defs/SecretName"}},
                "jsonPatches": {
                    "type": "array",
                    "items": {
                        "allOf": [
                            {"if": {"properties": {"op": {"enum": ["move", "copy"]}}}, "then": {"required": ["from"]}},
                            {
                                "if": {"properties": {"op": {"enum": ["add", "replace", "test"]}}},
                                "then": {"required": ["value"]},
                            },
                        ],
                        "$ref": "#/$defs/Patch",
                    },
                },
            },
            "required": [],
            "additionalProperties": False,
        },
        "SecretName": {
            "title": "SecretName",
            "type": "object",
            "properties": {
                "name": {
                    "type": "string",
                    "description": "a name of lower-case letters, digits, '-' and '.'",
                    "pattern": "^([a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)$",
                },
            },
            "required": ["name"],
            "additionalProperties": False,
        },
        "Patch": {
            "title": "Patch",
            "type": "object",
            "properties": {
                "op": {"enum": ["add", "copy", "move", "remove", "replace", "test"]},
                "path": {
                    "type": "string",
                    "description": "a path that begins with /, such as /spec/priorityClassName",
                    "pattern": "^(/.*)$",
                },
                "from": {
                    "type": "string",
                    "description": "a path that begins with /, such as /spec/priorityClassName",
                    "pattern": "^(/.*)$",
                },
                "value": {},
            },
            "required": ["op", "path"],
            "additionalProperties": False,
        },
        "ModelRollouts": {
            "title": "ModelRollouts",
            "type": "object",
            "properties": {"surge": {"type": "integer", "minimum": 0}},
            "required": [],
            "additionalProperties": False,
        },
        "ModelAutoscaling": {
            "title": "ModelAutoscaling",
            "type": "object",
            "properties": {
                "interval": {
                    "type": "string",
                    "description": "a duration such as 90s, 10m or 1h30m",
                    "pattern": "^((?=.*[1-9])(\\d+(\\.\\d+)?(ns|us|µs|ms|s|m|h))+)$",
                },
                "timeWindow": {
                    "type": "string",
                    "description": "a duration such as 90s, 10m or 1h30m",
                    "pattern": "^((?=.*[1-9])(\\d+(\\.\\d+)?(ns|us|µs|ms|s|m|h))+)$",
                },
                "stateConfigMapName": {"type": "string"},
            },
            "required": [],
            "additionalProperties": False,
        },
    },
}
