"""Names, labels and annotations of OME, with the original OME's values if it has them. Pure."""

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
"""Model kind -> finalizer with which the controller delays a model's deletion until its files are removed from nodes,
or a time limit is reached. BaseModels and ClusterBaseModels use the finalizers of the original OME."""
SERVICE_FINALIZER, BENCHMARK_FINALIZER = "inferenceservice.finalizers", "benchmarkjob.finalizers"
"""Finalizers that the original OME set on adopted InferenceServices and BenchmarkJobs. Deletion needs no action for
them."""

SERVICE_LABEL, COMPONENT_LABEL, RUNTIME_LABEL = "ome.io/inferenceservice", "component", "serving-runtime"
MODEL_NAME_LABEL, MODEL_SIZE_LABEL = "base-model-name", "base-model-size"
MODEL_TYPE_LABEL, MODEL_VENDOR_LABEL = "base-model-type", "base-model-vendor"
MODEL_LABEL = "ome.io/model"
"""Label of a model's Jobs, which load, inspect or remove its files, and of their pods. The value is the model's name,
shortened to a valid label value."""
VOLUME_LABEL, VOLUME_OF_LABEL = "slipway.inference/volume", "slipway.inference/volume-of"
"""Labels of a model's volumes and claims. VOLUME_LABEL contains the volume's name, and is how a claim selects its
volume. VOLUME_OF_LABEL is on claims, and contains the name of the model's node label without its prefix."""
ENGINE_LABEL = "ome.io/engine"
"""Label of pods that receive requests. The value is the name of the engine recognized from the command line or the
image; pods with an unknown engine do not have the label."""
FINE_TUNED_LABEL, STRATEGY_LABEL = "fine-tuned-serving", "fine-tuned-weight-ft-strategy"
MERGED_LABEL = "fine-tuned-serving-with-merged-weights"
BENCHMARK_LABEL = "benchmark"
RESERVED_LABEL = "models.ome/reserve-model-artifact"
"""Label with the value ``true`` of a model whose files stay on the nodes when the model is deleted."""

MODE = "ome.io/deploymentMode"
AUTOSCALER_CLASS, METRICS = "ome.io/autoscalerClass", "ome.io/metrics"
TARGET_UTILIZATION = "ome.io/targetUtilizationPercentage"
ACCELERATOR_CLASS = "ome.io/accelerator-class"
SERVICE_TYPE, LOAD_BALANCER_IP = "ome.io/service-type", "ome.io/load-balancer-ip"
MODEL_CATEGORY = "models.ome.io/category"
SKIP_CONFIG = "ome.oracle.com/skip-config-parsing"
"""Annotation with the value ``true`` of a model whose spec is not completed from its files."""

NODE_LABEL = "models.ome.io/"
"""Prefix of the node label for each model that a node has or will have."""
READY = "Ready"
"""Value of a model's label on a node that has the model."""

CLUSTER_NAME, SPACED_NAME, SPACE = 32, 38, 8
"""Maximum number of characters in a node label for the name of a cluster-scoped model, for the namespace and name of a
BaseModel together, and for a shortened namespace."""


def node_label(kind: Kind, namespace: str, name: str) -> str:
    """Return the node label of a model, in the original OME's form: ``models.ome.io/<kind>.<name>``, such as
    ``models.ome.io/clusterbasemodel.<name>``, or ``models.ome.io/<namespace>.basemodel.<name>``. If a name, or a
    namespace and name together, are too long, a digest replaces the beginning of the name, and a namespace with more
    than SPACE characters."""
    what = kind.kind.lower()
    if not kind.namespaced:
        return f"{NODE_LABEL}{what}.{ending(name, CLUSTER_NAME)}"
    if len(namespace) + len(name) > SPACED_NAME:
        namespace = space(namespace)
        name = ending(name, SPACED_NAME - len(namespace))
    return f"{NODE_LABEL}{namespace}.{what}.{name}"


def space(namespace: str) -> str:
    """Return the namespace as it appears in the node labels of models with long names: unchanged up to SPACE
    characters, and otherwise its digest."""
    return ending(namespace, SPACE)


def component_name(service: str, component: str) -> str:
    """Return the name of a component's objects, except its LeaderWorkerSet and ScaledObject: ``<service>-<component>``.
    The service's name is shortened so that the result has at most 63 characters."""
    return with_ending(service, f"-{component}")


def text_value(text: str) -> str:
    """Return a label value for any string: invalid characters become dashes, ``-``, ``_`` and ``.`` are removed from
    both ends, and a digest replaces the beginning of a long string. The result may be empty."""
    plain = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "-_.") else "-" for letter in text)
    return ending(plain.strip("-_."), NAME_LENGTH)
