"""Names, labels and annotations of OME. They are the same as in the original where it has them. Pure."""

from __future__ import annotations

from slipway.kube.objects import Kind
from slipway.kube.values.names import NAME_LENGTH, ending, with_ending

GROUP = "ome.io"
BASE_MODEL = Kind(GROUP, "v1beta1", "BaseModel", "basemodels")
CLUSTER_BASE_MODEL = Kind(GROUP, "v1beta1", "ClusterBaseModel", "clusterbasemodels", namespaced=False)
FINE_TUNED_WEIGHT = Kind(GROUP, "v1beta1", "FineTunedWeight", "finetunedweights", namespaced=False)
SERVING_RUNTIME = Kind(GROUP, "v1beta1", "ServingRuntime", "servingruntimes")
CLUSTER_SERVING_RUNTIME = Kind(GROUP, "v1beta1", "ClusterServingRuntime", "clusterservingruntimes", namespaced=False)
INFERENCE_SERVICE = Kind(GROUP, "v1beta1", "InferenceService", "inferenceservices")
BENCHMARK_JOB = Kind(GROUP, "v1beta1", "BenchmarkJob", "benchmarkjobs")

MODEL_FINALIZERS = {
    BASE_MODEL.kind: "basemodels.ome.io/finalizer",
    CLUSTER_BASE_MODEL.kind: "clusterbasemodels.ome.io/finalizer",
    FINE_TUNED_WEIGHT.kind: "finetunedweights.ome.io/finalizer",
}
"""Finalizers of a model while nodes have its files. Those of base models are the same as in the original."""
SERVICE_FINALIZER, BENCHMARK_FINALIZER = "inferenceservice.finalizers", "benchmarkjob.finalizers"
"""Finalizers of the original on adopted objects. They require no action."""

SERVICE_LABEL, COMPONENT_LABEL, RUNTIME_LABEL = "ome.io/inferenceservice", "component", "serving-runtime"
MODEL_NAME_LABEL, MODEL_SIZE_LABEL = "base-model-name", "base-model-size"
MODEL_TYPE_LABEL, MODEL_VENDOR_LABEL = "base-model-type", "base-model-vendor"
MODEL_LABEL = "ome.io/model"
"""Label of the Jobs that load a model, and of their pods: the model's name."""
VOLUME_LABEL, VOLUME_OF_LABEL = "slipway.inference/volume", "slipway.inference/volume-of"
"""Labels of a model's volumes and claims. The first contains the name of a volume, by which its claim selects it; the
second is on claims and contains the end of the model's node label."""
ENGINE_LABEL = "ome.io/engine"
"""Label of pods that receive requests: the engine in their command line, if it is a known one."""
FINE_TUNED_LABEL, STRATEGY_LABEL = "fine-tuned-serving", "fine-tuned-weight-ft-strategy"
MERGED_LABEL = "fine-tuned-serving-with-merged-weights"
BENCHMARK_LABEL = "benchmark"
RESERVED_LABEL = "models.ome/reserve-model-artifact"
"""Label of a model: its files stay on the nodes when it is deleted."""

MODE = "ome.io/deploymentMode"
AUTOSCALER_CLASS, METRICS = "ome.io/autoscalerClass", "ome.io/metrics"
TARGET_UTILIZATION = "ome.io/targetUtilizationPercentage"
ACCELERATOR_CLASS = "ome.io/accelerator-class"
SERVICE_TYPE, LOAD_BALANCER_IP = "ome.io/service-type", "ome.io/load-balancer-ip"
MODEL_CATEGORY = "models.ome.io/category"
SKIP_CONFIG = "ome.oracle.com/skip-config-parsing"
"""Annotation of a model: its spec is not completed from its files."""

NODE_LABEL = "models.ome.io/"
"""Prefix of the node label for each model that a node has, or is about to have."""
READY = "Ready"
"""Value of the label on a node that has the model."""

CLUSTER_NAME, SPACED_NAME, SPACE = 32, 38, 8
"""Maximum characters in a node label for a name, for a namespace with a name, and for a shortened namespace."""


def node_label(kind: Kind, namespace: str, name: str) -> str:
    """Returns the node label of a model, in the original's form: ``models.ome.io/clusterbasemodel.<name>``, or
    ``models.ome.io/<namespace>.basemodel.<name>``. Long names keep their end, preceded by a digest of the whole
    name."""
    what = kind.kind.lower()
    if not kind.namespaced:
        return f"{NODE_LABEL}{what}.{ending(name, CLUSTER_NAME)}"
    if len(namespace) + len(name) > SPACED_NAME:
        namespace = space(namespace)
        name = ending(name, SPACED_NAME - len(namespace))
    return f"{NODE_LABEL}{namespace}.{what}.{name}"


def space(namespace: str) -> str:
    """Returns the beginning of the label of a model with a long name."""
    return ending(namespace, SPACE)


def component_name(service: str, component: str) -> str:
    """Returns the name of all objects of a service's component: ``<service>-<component>``, at most 63 characters."""
    return with_ending(service, f"-{component}")


def text_value(text: str) -> str:
    """Converts a text to a label value: invalid characters become dashes, and a digest replaces the beginning of a long
    text."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in text)
    return ending(plain.strip("-_."), NAME_LENGTH)
