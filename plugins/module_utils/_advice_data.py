# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.
# Written by `make generate` from docs/reference/troubleshooting.md; do not edit.

"""What to do about each reason of a condition, in the words of the page about it."""

from __future__ import annotations

from collections.abc import Mapping

ADVICE: Mapping[str, str] = {
    "NotReady": ("Wait. If it does not change, read the controller's log."),
    "WaitingForPods": (
        "Wait. The engine's log shows the download. If the start takes longer than startupTimeout, the "
        "reason becomes StartupTimeout."
    ),
    "RollingOut": (
        "Wait. If a new pod cannot start, the reason changes to its failure. The old pods continue to "
        "answer, and phase stays Ready."
    ),
    "Retrying": (
        "Wait: the controller retries. If the reason stays, read the API server's error in the message. "
        "The usual cause is an admission webhook that does not respond."
    ),
    "LoadingCache": ("Wait. If the loader's pod cannot start, the reason changes, for example to Unschedulable."),
    "LoadingAdapters": (
        "Wait. If this takes long, search the controller's log for loader in pod. status 403 with a "
        "time: synchronize the clocks of the nodes, which differ by more than a minute. the signature is "
        "not the controller's: replace the pod (see Orders to loaders)."
    ),
    "LoadingAdapter": (
        "Wait. The first adapter of a service replaces its pods, unless extraArgs contains --enable-lora."
    ),
    "ServiceNotReady": ("Check the status of the InferenceService."),
    "Leaving": (
        "Wait. After ten minutes, the Model is deleted in any case, and its directory "
        "models/<name>-<uid> remains on the volume."
    ),
    "InUse": (
        "Delete the InferenceServices in the message, set suspend: true in them, or give them another "
        "Model. The deletion cannot be undone. A new Model with another name and the same source reuses "
        "the weights."
    ),
    "ModelLeaving": ("Give the service another Model, or delete it. See InUse."),
    "InvalidSpec": ("Correct the field in the message. Existing pods continue to serve."),
    "NotAllowed": (
        "Remove the field from the spec. If you are the operator and trust the authors, set the variable "
        "for the setting (see permissions of authors)."
    ),
    "InvalidObject": (
        "Correct or delete the object. If the message contains the name of a Python exception, report a "
        "bug with the object."
    ),
    "InvalidArgument": (
        'Correct the argument. Write each argument as one list item: --ctx-size and "4096" are two '
        "items. A custom image may contain another version of the engine: run it with --help."
    ),
    "UnknownProfile": (
        "Correct resourceProfile, or add the profile to resourceProfiles (see KubeAI's system "
        "configuration). Existing pods continue to serve."
    ),
    "UnknownCacheProfile": ("Correct cacheProfile, or add the profile to cacheProfiles."),
    "NoImage": (
        "Add an image under modelServers, or set image in the Model. For OME, set it in the runner of "
        "the service or of the runtime."
    ),
    "InvalidConfig": ("Correct the system configuration. The controller reloads it immediately."),
    "NameTaken": ("Rename the Model, or delete the other object. The Model continues within a minute."),
    "MissingKind": ("Install the software in the message. The Model continues within half a minute."),
    "Invalid": ("Correct the problem in the message. If the controller lacks rights, run the site playbook."),
    "Forbidden": ("Correct the problem in the message. If the controller lacks rights, run the site playbook."),
    "NotFound": ("Correct the problem in the message. If the controller lacks rights, run the site playbook."),
    "ImagePullBackOff": (
        "Check spec.image, and check from a node that the registry responds. For a private registry, "
        "create a Secret of the type kubernetes.io/dockerconfigjson in the Model's namespace, and name "
        "it in imagePullSecrets. In a closed network, set slipway_engine_images (see Closed networks)."
    ),
    "CreateContainerConfigError": ("Add the missing key. The pod then starts without further action."),
    "CrashLoopBackOff": (
        "Read the log lines. If the file is not a GGUF, or this version of llama.cpp does not support "
        "its architecture, use another file or a newer image. If the log reports permission denied, use "
        "an image that runs as user 65532."
    ),
    "OOMKilled": (
        "Raise the limit: resources.limits.memory, or for KubeAI the limit or the count of the resource "
        "profile. Or use a smaller quantization, a smaller --ctx-size, or a lower --parallel. Downloaded "
        "files do not count, because they are stored on disk."
    ),
    "OutOfGpuMemory": (
        "Use a shorter context (--max-model-len, --ctx-size), a quantized model, a larger GPU, or more "
        "GPUs with --tensor-parallel-size. If another process uses the GPU, lower "
        "--gpu-memory-utilization."
    ),
    "NoGpu": (
        "Check that the resource profile requests a GPU, and that the node's driver is new enough for "
        "the image. For AMD and Intel GPUs, set the groups of the device files. On nodes without a GPU, "
        "use a CPU profile and a CPU image."
    ),
    "IllegalInstruction": ("Run the model on other nodes, or use an image for this CPU."),
    "StartupTimeout": (
        "If the log lines show a download or loading in progress, raise startupTimeout, or give the "
        "KubeAI Model a cache. Otherwise, look for a hub that does not respond, or a slow disk."
    ),
    "DownloadFailed": ("For other messages, check that the source in the spec exists, and that pods can reach it."),
    "CacheLoadFailed": (
        "Fix the problem in the last log lines: the URL, the Secret with the credentials, or the size of "
        "the claim. If you changed only the content of the Secret, delete the Job load-cache-NAME to "
        "retry immediately."
    ),
    "DownloadStarted": ("Wait. If the loader's pod cannot start, the reason changes, for example to Unschedulable."),
    "CopyStarted": ("Wait. If the loader's pod cannot start, the reason changes, for example to Unschedulable."),
    "IntegrityCheckStarted": (
        "Wait. If the loader's pod cannot start, the reason changes, for example to Unschedulable."
    ),
    "Suspended": ("Set suspend: false to start the service again."),
    "ModelNotReady": ("Wait. The status of the Model shows the progress."),
    "NotScheduled": ("Wait, or check the other conditions."),
    "ModelNotFound": ("Correct modelRef, or correct the Model: kubectl describe models.inference.llmkube.dev."),
    "InvalidModel": ("Correct modelRef, or correct the Model: kubectl describe models.inference.llmkube.dev."),
    "ModelFailed": ("Correct modelRef, or correct the Model: kubectl describe models.inference.llmkube.dev."),
    "QuotaExceeded": (
        "Wait until other services release enough GPUs. Or request fewer GPUs, suspend another service "
        "in the namespace, or ask the operator for a larger quota. kubectl get gpuquotas "
        "--all-namespaces shows the usage."
    ),
    "QuotaReserved": ("Wait."),
    "QuotaTooSmall": (
        "Request fewer GPUs or replicas, lower autoscaling.maxReplicas, or ask the operator for a larger quota."
    ),
    "PriorityTooLow": ("Set a higher priority, or ask the operator to lower minPriority."),
    "Asleep": ("Wait. If requests get a 503, raise the pool's swapBudget."),
    "Starting": ("Wait. If requests get a 503, raise the pool's swapBudget."),
    "Swapping": ("Wait. If requests get a 503, raise the pool's swapBudget."),
    "Unallocated": ("Wait. If requests get a 503, raise the pool's swapBudget."),
    "PoolUndecided": ("If it remains, correct the fault in the pool's condition Accepted."),
    "MemberMissing": ("Create the InferenceService, or remove its name from members of one of the pools."),
    "MemberOfOtherPool": ("Create the InferenceService, or remove its name from members of one of the pools."),
    "CannotStart": ("Follow the message."),
    "SwitchedOff": ("Set suspend: false and replicas: 1."),
    "ServiceNotFound": ("Create the service."),
    "RuntimeMismatch": ("Use the runtime sglang or vllm."),
    "NamespaceNotAllowed": ("Move the adapter to the service's namespace."),
    "AdapterNameTaken": ("Choose another name."),
    "PortTaken": ("Choose another containerPort."),
    "FieldsIgnored": ("Remove the fields in the message, or use a runtime that supports them."),
    "RetiredFlags": (
        "Remove the flags from spec.args, or use the successors in the message. To keep an old flag, set "
        "spec.image to a version that supports it: the controller does not change the arguments of "
        "custom images."
    ),
    "SpeculativeMissingModel": ("Create the Model, or name another one."),
    "SpeculativeMissingConfig": ("Set the missing field."),
    "IdleCheckUnsupported": (
        "Use a runtime other than generic, or raise controller_drain_seconds above the duration of your "
        "longest answers."
    ),
    "NotCreated": ("Install Pyrra."),
    "IndicatorUnsupportedForRuntime": ("Use the indicator availability."),
    "MetalOutOfReach": ("Choose another accelerator, or serve the model on the Mac."),
    "InvalidSource": (
        "Correct the spec. Use files with a Hub repository or a bucket directory, and sha256 with a single file."
    ),
    "InvalidFileSet": (
        "Correct the spec. Use files with a Hub repository or a bucket directory, and sha256 with a single file."
    ),
    "SourceNotAllowed": (
        "Change the spec. Or, as the operator, set controller_allowed_remote_hosts or "
        "controller_allowed_host_path_roots (see allowed sources of weights), and delete the Job in the "
        "message."
    ),
    "SourceNotFound": ("Correct the file name in the spec. The controller checks the source every five minutes."),
    "IntegrityCheckFailed": (
        "Find out whether the hash or the source is wrong. Change the spec, or delete the Job in the message."
    ),
    "UnsupportedSource": (
        "Copy the file again, with git lfs pull if it is a pointer. Then delete the Job in the message, "
        "or change the spec. The controller reads files on a claim or a node again every five minutes."
    ),
    "CopyFailed": (
        "Fix the problem in the log lines. The loader runs as user 65532 (controller_run_as_user), which "
        "must have read access to the file. If the pod does not start, its node may lack the file."
    ),
    "InspectionFailed": (
        "Fix the problem in the log lines. The loader runs as user 65532 (controller_run_as_user), which "
        "must have read access to the file. If the pod does not start, its node may lack the file."
    ),
    "PVCNotFound": ("Create the claim and copy the weights to it, or correct its name in the spec."),
    "PVCNotBound": ("Check the claim's volume, and copy the weights to it."),
    "SecretNotFound": (
        "Create the object, or correct its name in the spec. Secrets and ConfigMaps must be in the model's namespace."
    ),
    "ConfigMapNotFound": (
        "Create the object, or correct its name in the spec. Secrets and ConfigMaps must be in the model's namespace."
    ),
    "RuntimeClassNotFound": (
        "Create the object, or correct its name in the spec. Secrets and ConfigMaps must be in the model's namespace."
    ),
    "ResourceNotFound": (
        "Check the device plugin: kubectl describe nodes lists the resource under Allocatable. If the "
        "nodes have fewer devices, request fewer. If an autoscaler adds nodes with devices, wait for the "
        "node."
    ),
    "AdapterFailed": (
        "Correct the adapter's URL or credentials. For a LoRAAdapter, check that path exists in the "
        "engine's container and contains an adapter_config.json. Check the adapter's rank: vLLM accepts "
        "at most --max-lora-rank (default 16), and SGLang at most maxLoraRank (default 64). The "
        "controller retries."
    ),
    "FileNotFound": ("Correct the path, or add the file."),
    "UnsupportedModel": ("Use a newer image of the engine, or another engine. Copy or download a damaged file again."),
    "BaseModelNotFound": ("Correct spec.model.name, or create the model."),
    "BaseModelDisabled": ("Enable the model."),
    "BaseModelNotReady": (
        'Check the model: kubectl describe clusterbasemodels.ome.io "$MODEL" shows the progress and the '
        "errors of each node. If its spec has no modelFormat, the controller sets it when a node has the "
        "files."
    ),
    "FineTunedWeightNotFound": (
        "Correct spec.model.fineTunedWeights, use an engine that supports adapters, or merge the weights "
        "into the model and set merged_weights: true in the weight's configuration."
    ),
    "FineTunedWeightMismatch": (
        "Correct spec.model.fineTunedWeights, use an engine that supports adapters, or merge the weights "
        "into the model and set merged_weights: true in the weight's configuration."
    ),
    "FineTunedWeightNotServed": (
        "Correct spec.model.fineTunedWeights, use an engine that supports adapters, or merge the weights "
        "into the model and set merged_weights: true in the weight's configuration."
    ),
    "NoRuntime": (
        "Install a runtime for the model, set autoSelect: true in a suitable runtime, or name a runtime "
        "in spec.runtime. The controller uses a named runtime even if it does not match the model."
    ),
    "RuntimeNotFound": (
        "Install a runtime for the model, set autoSelect: true in a suitable runtime, or name a runtime "
        "in spec.runtime. The controller uses a named runtime even if it does not match the model."
    ),
    "RuntimeDisabled": (
        "Install a runtime for the model, set autoSelect: true in a suitable runtime, or name a runtime "
        "in spec.runtime. The controller uses a named runtime even if it does not match the model."
    ),
    "RuntimeInvalid": (
        "Install a runtime for the model, set autoSelect: true in a suitable runtime, or name a runtime "
        "in spec.runtime. The controller uses a named runtime even if it does not match the model."
    ),
    "Shadowed": ("Change the priority or the size range of one runtime, or disable it."),
    "WaitingForBackends": ("Check the InferenceServices in status.backends."),
    "BackendsSilent": ("Check the InferenceServices in status.backends."),
    "NotAccepted": ("Check the InferenceServices in status.backends."),
    "ExternalNotServed": (
        "Use the alternative in the message, or remove the backend or rule. ModelRouter lists all fields."
    ),
    "ShadowNotServed": (
        "Use the alternative in the message, or remove the backend or rule. ModelRouter lists all fields."
    ),
    "BudgetNotServed": (
        "Use the alternative in the message, or remove the backend or rule. ModelRouter lists all fields."
    ),
    "ClassificationNotServed": (
        "Use the alternative in the message, or remove the backend or rule. ModelRouter lists all fields."
    ),
    "LatencyNotServed": (
        "Use the alternative in the message, or remove the backend or rule. ModelRouter lists all fields."
    ),
    "McpNotServed": (
        "Use the alternative in the message, or remove the backend or rule. ModelRouter lists all fields."
    ),
    "AuthNotServed": (
        "Use the alternative in the message, or remove the backend or rule. ModelRouter lists all fields."
    ),
    "UnknownBackend": ("Correct the rule or backend in the message."),
    "NoRoute": ("Correct the rule or backend in the message."),
    "NotFailClosed": ("Correct the rule or backend in the message."),
    "NoCapableBackend": ("Correct the rule or backend in the message."),
    "TooManyTargets": ("Correct the rule or backend in the message."),
    "NoRunner": ("Give the part a runner with an image, name a runtime with this part, or remove the part."),
    "ModeNotServed": ("Use the alternative in the message. OME lists all differences."),
    "AcceleratorClassNotServed": ("Use the alternative in the message. OME lists all differences."),
    "CanaryNotServed": ("Use the alternative in the message. OME lists all differences."),
    "ScaleMetricNotServed": ("Use the alternative in the message. OME lists all differences."),
    "Deprecated": ("Replace spec.predictor with spec.engine, spec.model and spec.runtime at the next change."),
    "SourceNotServed": (
        "Correct spec.storage. The operator allows node directories with controller_ome_roots and "
        "controller_ome_shared_roots."
    ),
    "PathNotAllowed": (
        "Correct spec.storage. The operator allows node directories with controller_ome_roots and "
        "controller_ome_shared_roots."
    ),
    "PathTaken": (
        "Correct spec.storage. The operator allows node directories with controller_ome_roots and "
        "controller_ome_shared_roots."
    ),
    "ClaimOfOtherNamespace": (
        "Correct spec.storage. The operator allows node directories with controller_ome_roots and "
        "controller_ome_shared_roots."
    ),
    "NodeFull": (
        "Delete unused BaseModels, or select fewer nodes with spec.storage.nodeSelector. As the "
        "operator, use ClusterBaseModels for models of several namespaces: they have no such limit."
    ),
    "NoNode": ("Label a node, or change the selectors."),
    "LoadFailed": ("Fix the problem in the message. Load Jobs and their Secrets are in the namespace ome."),
    "ClaimNotFound": ("Create the claim."),
    "ClaimNotBound": ("Check its volume."),
    "Loading": ("Wait. The message shows the progress on each node."),
    "WaitingForTurn": ("Wait. The message shows the progress on each node."),
    "HasTurn": ("Wait."),
    "NextInNamespace": ("Wait."),
    "WaitingInNamespace": ("Wait."),
    "Pending": ("Wait."),
    "WaitingForUserUpload": ("Upload the files with the Secret in status.upload."),
    "Publishing": ("Wait."),
    "PublicationFailed": (
        "Fix the problem in the message; if the upload expired, delete the Model and create it again."
    ),
    "InsufficientStorage": ("Delete unused Models, or ask the operator to raise depot_capacity_limit."),
    "ArtifactVanished": ("Delete the Model and create it again."),
    "InvalidRefreshInterval": ("Set a duration such as 10m or 1h30m. The minimum is 30 seconds."),
    "Stale": (
        "Check the address in the message, a proxy or firewall between the clusters, and the other "
        "cluster's depot. The controller retries, first within seconds and later every refreshInterval."
    ),
    "Unreachable": (
        "Check the address in the message, a proxy or firewall between the clusters, and the other "
        "cluster's depot. The controller retries, first within seconds and later every refreshInterval."
    ),
    "Refused": (
        "Check the address in the message, a proxy or firewall between the clusters, and the other "
        "cluster's depot. The controller retries, first within seconds and later every refreshInterval."
    ),
    "Unauthorized": (
        "Correct the Secret in the message. controller_catalog_secrets lists the Secrets that the "
        "controller may read; depot_catalog_secrets, by default the same, those for the depot's imports. "
        "Changes take effect at the next attempt."
    ),
    "SecretMissing": (
        "Correct the Secret in the message. controller_catalog_secrets lists the Secrets that the "
        "controller may read; depot_catalog_secrets, by default the same, those for the depot's imports. "
        "Changes take effect at the next attempt."
    ),
    "SecretForbidden": (
        "Correct the Secret in the message. controller_catalog_secrets lists the Secrets that the "
        "controller may read; depot_catalog_secrets, by default the same, those for the depot's imports. "
        "Changes take effect at the next attempt."
    ),
    "InvalidCredentials": (
        "Correct the Secret in the message. controller_catalog_secrets lists the Secrets that the "
        "controller may read; depot_catalog_secrets, by default the same, those for the depot's imports. "
        "Changes take effect at the next attempt."
    ),
    "InvalidCatalog": (
        "Check spec.url: it must be the base URL, without /v1/catalog. If the URL is correct, contact "
        "the operator of that catalog."
    ),
    "InvalidGrant": (
        "Check spec.url: it must be the base URL, without /v1/catalog. If the URL is correct, contact "
        "the operator of that catalog."
    ),
    "Redirected": (
        "Check spec.url: it must be the base URL, without /v1/catalog. If the URL is correct, contact "
        "the operator of that catalog."
    ),
    "InvalidCertificate": (
        "Put the other cluster's CA into the Secret. A depot's CA is in the ConfigMap slipway-depot-ca "
        "in its namespace."
    ),
    "InvalidAuthority": (
        "Put the other cluster's CA into the Secret. A depot's CA is in the ConfigMap slipway-depot-ca "
        "in its namespace."
    ),
    "AddressNotAllowed": ("Use another address."),
    "WaitingForService": ("Wait. If it takes long, check the service; the message includes its state."),
    "WaitingForPod": ("Wait. If it takes long, check the service; the message includes its state."),
    "Running": ("Wait. If it takes long, check the service; the message includes its state."),
    "RequestsFailed": (
        "Fix the first error, which is in the message, and create a new BenchmarkJob. A finished "
        "BenchmarkJob never runs again."
    ),
    "NoRequests": (
        "Fix the first error, which is in the message, and create a new BenchmarkJob. A finished "
        "BenchmarkJob never runs again."
    ),
    "NoResults": (
        "Fix the first error, which is in the message, and create a new BenchmarkJob. A finished "
        "BenchmarkJob never runs again."
    ),
    "BenchmarkFailed": (
        "Fix the first error, which is in the message, and create a new BenchmarkJob. A finished "
        "BenchmarkJob never runs again."
    ),
    "PodRemoved": (
        "Create a new BenchmarkJob. If the nodes are full, request less CPU in podOverride.resources "
        "(default: half a core)."
    ),
    "OutputNotServed": ("Write the results to a claim or a bucket."),
    "TokenizerUnknown": ("Set a tokenizer from the Hub in the field that the message names."),
    "Unschedulable": (
        "Lower resources.requests (for a KubeAI Model, choose another resourceProfile or a lower count), "
        "add nodes, or free some. If an autoscaler adds nodes, raise "
        "controller_unschedulable_grace_seconds."
    ),
    "WaitingForGPU": (
        "Wait until other services end, raise priority, or add nodes. If no node offers the resource, "
        "check its device plugin: kubectl describe nodes lists the resource under Allocatable."
    ),
    "NotYet": ("Wait."),
    "FailedGetResourceMetric": ("Install metrics-server."),
    "FailedGetPodsMetric": ("Install an adapter (see LLMKube autoscaling)."),
    "PodsRejected": (
        "Fix the problem in the message. If a quota requires it, set resources.limits.memory. If Pod "
        "Security rejects a KubeAI pod or cache Job, set modelServerPods (see KubeAI's system "
        "configuration). If a ServiceAccount is missing, create it in the Model's namespace, or remove "
        "serviceAccountName from modelServerPods. On OpenShift, see user and group of the pods."
    ),
    "ChangeFailed": ("Fix the problem in Stalled, or undo the change."),
    "NameConflict": ("Rename one of the two models, or use the ID with the namespace. See IDs and their owners."),
    "NoId": ("Rename or delete one of the two models."),
    "NotRouted": (
        "Ask the operator to label the namespace according to routedNamespaces, or create the Model in a "
        "namespace that is served. See IDs and their owners."
    ),
}
# Text of a message in lower case, and what to do about it.
CASES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "DownloadFailed": (
        (
            "the hub requires a token",
            (
                "Check the repository's name: the hub also asks for a token if it does not exist. Create a "
                "Secret with HUGGINGFACE_HUB_TOKEN and name it in envFrom. If envFrom names several Secrets, use "
                "the key HF_TOKEN. For a KubeAI Model, create the Secret in secretNames.huggingface, with the "
                "key token, in the Model's namespace."
            ),
        ),
        (
            "the token is not allowed to read this repository",
            ("Accept the repository's terms on the hub, with the account of the token."),
        ),
        ("the hub has no such repository", ("Check source.huggingface, or url. Names are case-sensitive.")),
        ("the hub has no such file", ("Check source.huggingface and source.file, or url. Names are case-sensitive.")),
        ("has no file", ("Set the file to one that the repository contains, such as the one in the message.")),
        (
            "the hub cannot be reached from the pod",
            ("Check DNS, the proxy and network policies. In a closed network, set a mirror (see Closed networks)."),
        ),
        ("the hub limits requests for now", ("Wait: the pod retries. Or use a token, or a mirror.")),
        (
            "permission denied: check the volume and its owner",
            (
                "Set controller_model_cache_run_as_user: 0. Root owns the cache volume, and its storage ignores "
                "fsGroup, as NFS and node directories do."
            ),
        ),
        (
            "the model is larger than the pod's volume for weights",
            ("Use a smaller quantization. A pod has 20 GiB for weights."),
        ),
    ),
}
