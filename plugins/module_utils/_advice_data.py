# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.
# Written by `make generate` from docs/troubleshooting.md; do not edit.

"""What to do about each reason of a condition, in the words of the page about it."""

from __future__ import annotations

from collections.abc import Mapping

ADVICE: Mapping[str, str] = {
    "WaitingForPods": (
        "Wait. Follow the engine's log to see the download. If it takes longer than startupTimeout, the reason "
        "becomes StartupTimeout."
    ),
    "RollingOut": (
        "Wait. When a new pod cannot start, the reason changes to the failure and the old pods keep answering: "
        "phase stays Ready."
    ),
    "Retrying": (
        "Wait: the controller retries by itself. If the reason stays, read the API server's words in the "
        "message: the usual cause is an admission webhook that does not answer."
    ),
    "LoadingCache": (
        "Wait. If something keeps the loader's pod from running, the reason changes as it would for a model's "
        "pod: to Unschedulable, for example, when the claim finds no volume."
    ),
    "CheckingSource": ("Wait. It takes a few seconds, and two minutes at most."),
    "LoadingAdapters": (
        "Wait. If it does not end, look for loader in pod in the controller's log. status 403 with a time in it "
        "means that the clocks of two nodes differ by more than a minute. the signature is not the controller's "
        "goes away when the pod is replaced (see Orders to loaders)."
    ),
    "LoadingAdapter": (
        "Wait. The first adapter of a service replaces its pods, unless extraArgs has --enable-lora. If it does "
        "not end, the status of the InferenceService says what the service waits for."
    ),
    "ServiceNotReady": (
        "Wait. The first adapter of a service replaces its pods, unless extraArgs has --enable-lora. If it does "
        "not end, the status of the InferenceService says what the service waits for."
    ),
    "Leaving": (
        "Wait. After ten minutes the Model is removed in any case. If the Job has not finished by then, the "
        "folder models/<name>-<uid> stays on the volume."
    ),
    "InUse": (
        "Delete those services, give them another Model, or set suspend: true. A deletion cannot be undone, but "
        "a Model of the same source under another name takes over the weights without a download."
    ),
    "ModelLeaving": (
        "Give the service another Model, or delete the service: the Model waits for one of these (see InUse)."
    ),
    "InvalidSpec": ("Correct the field. What ran before was left alone."),
    "NotAllowed": (
        "Take the field out of the spec. If you are the operator and trust the authors with it, set the variable "
        "that belongs to the setting. If it appeared with an upgrade from 0.4.0, that page lists the variables "
        "that restore the old behaviour."
    ),
    "InvalidObject": (
        "Correct the object, or delete it; that clears the fault at once. If the message contains the name of a "
        "Python exception, please report it together with the object."
    ),
    "InvalidArgument": (
        'Correct it. One argument is one list item: --ctx-size and "4096" are two. An image of your own may have '
        "another version of the engine: run it with --help."
    ),
    "UnknownProfile": (
        "Correct the name, or add the profile under resourceProfiles (see Operating). What ran before keeps serving."
    ),
    "UnknownCacheProfile": ("Correct the name, or add the profile."),
    "NoImage": (
        "Add one under modelServers, or set image in the Model; with OME, set it in the runner of the service or "
        "the runtime."
    ),
    "InvalidConfig": ("Correct it as Operating describes. A change is read at once."),
    "NameTaken": ("Give the Model another name, or remove the other object. The Model then continues within a minute."),
    "MissingKind": ("Install it. The Model continues within half a minute."),
    "Invalid": ("Correct what the message names. After a change of the controller's rights run the site playbook."),
    "Forbidden": ("Correct what the message names. After a change of the controller's rights run the site playbook."),
    "NotFound": ("Correct what the message names. After a change of the controller's rights run the site playbook."),
    "ImagePullBackOff": (
        "Check spec.image, and check from a node whether the registry answers. For a private registry, name a "
        "Secret of the type kubernetes.io/dockerconfigjson in imagePullSecrets, in the Model's namespace. In a "
        "closed network, set slipway_engine_images (see Operating)."
    ),
    "CreateContainerConfigError": ("Create it in the Model's namespace. The pod then starts by itself."),
    "CrashLoopBackOff": (
        "Read the log lines. Common causes: the file is not a GGUF file; this version of llama.cpp does not know "
        "the model's architecture (use a newer image); an image of your own does not run as user 65532 "
        "(permission denied)."
    ),
    "OOMKilled": (
        "Raise the limit (resources.limits.memory; for KubeAI, the limit of the resource profile, or its count), "
        "or use a smaller quantization, a smaller --ctx-size or a lower --parallel. The download cache does not "
        "count: it is on disk."
    ),
    "OutOfGpuMemory": (
        "Use a shorter context (--max-model-len, --ctx-size), a quantized model, more GPUs with "
        "--tensor-parallel-size, or larger GPUs. If another process uses the GPU, lower --gpu-memory-utilization."
    ),
    "NoGpu": (
        "Make sure that the resource profile asks for a GPU and that the node's driver is new enough for the "
        "image. On nodes without a GPU, use a profile and an image for CPUs."
    ),
    "IllegalInstruction": ("Use other nodes, or an image that is built for these."),
    "StartupTimeout": (
        "If the log lines in the message show a download or loading in progress, raise startupTimeout, or give "
        "the KubeAI Model a cache. Otherwise find out what it waits for, such as a hub that does not answer or a "
        "slow disk."
    ),
    "CacheLoadFailed": (
        "Fix what the log lines name: the url, the Secret with the credentials, the size of the claim. If only "
        "the content of the Secret was wrong, delete the Job to retry at once."
    ),
    "DownloadStarted": (
        "Wait. If something keeps the loader's pod from running, the reason changes as it would for a model's pod."
    ),
    "CopyStarted": (
        "Wait. If something keeps the loader's pod from running, the reason changes as it would for a model's pod."
    ),
    "IntegrityCheckStarted": (
        "Wait. If something keeps the loader's pod from running, the reason changes as it would for a model's pod."
    ),
    "Suspended": ("Set suspend: false when it should serve again."),
    "ModelNotReady": ("Wait. The Model's own status shows the progress."),
    "NotScheduled": ("Wait, or read the other conditions."),
    "ModelNotFound": ("Correct modelRef, or the Model: kubectl describe models.inference.llmkube.dev."),
    "InvalidModel": ("Correct modelRef, or the Model: kubectl describe models.inference.llmkube.dev."),
    "ModelFailed": ("Correct modelRef, or the Model: kubectl describe models.inference.llmkube.dev."),
    "QuotaExceeded": (
        "Wait: the service starts when others have released enough GPUs. Otherwise ask for fewer GPUs, suspend "
        "another service of the namespace, or ask the operator for a larger quota. kubectl get gpuquotas "
        "--all-namespaces shows what is in use."
    ),
    "QuotaReserved": (
        "Wait: the service starts when others have released enough GPUs. Otherwise ask for fewer GPUs, suspend "
        "another service of the namespace, or ask the operator for a larger quota. kubectl get gpuquotas "
        "--all-namespaces shows what is in use."
    ),
    "Asleep": (
        "Wait. If Swapping does not end, find out with kubectl get pods what keeps the pods of residentMember; a "
        "member whose spec is refused keeps its pods until the spec is fixed. If requests time out while others "
        "have their turns, raise swapBudget, or give the busiest member a GPU of its own."
    ),
    "Starting": (
        "Wait. If Swapping does not end, find out with kubectl get pods what keeps the pods of residentMember; a "
        "member whose spec is refused keeps its pods until the spec is fixed. If requests time out while others "
        "have their turns, raise swapBudget, or give the busiest member a GPU of its own."
    ),
    "Swapping": (
        "Wait. If Swapping does not end, find out with kubectl get pods what keeps the pods of residentMember; a "
        "member whose spec is refused keeps its pods until the spec is fixed. If requests time out while others "
        "have their turns, raise swapBudget, or give the busiest member a GPU of its own."
    ),
    "TurnNotOver": (
        "Wait. If Swapping does not end, find out with kubectl get pods what keeps the pods of residentMember; a "
        "member whose spec is refused keeps its pods until the spec is fixed. If requests time out while others "
        "have their turns, raise swapBudget, or give the busiest member a GPU of its own."
    ),
    "NobodyAsked": (
        "Wait. If Swapping does not end, find out with kubectl get pods what keeps the pods of residentMember; a "
        "member whose spec is refused keeps its pods until the spec is fixed. If requests time out while others "
        "have their turns, raise swapBudget, or give the busiest member a GPU of its own."
    ),
    "PoolUndecided": (
        "Wait. If Swapping does not end, find out with kubectl get pods what keeps the pods of residentMember; a "
        "member whose spec is refused keeps its pods until the spec is fixed. If requests time out while others "
        "have their turns, raise swapBudget, or give the busiest member a GPU of its own."
    ),
    "MemberMissing": ("Create the service, or remove it from members. A service can be in one pool only."),
    "MemberOfOtherPool": ("Create the service, or remove it from members. A service can be in one pool only."),
    "CannotStart": (
        "CannotStart: the message says what it waits for, or what to fix. SwitchedOff: set suspend: false and "
        "replicas: 1."
    ),
    "SwitchedOff": (
        "CannotStart: the message says what it waits for, or what to fix. SwitchedOff: set suspend: false and "
        "replicas: 1."
    ),
    "QuotaTooSmall": (
        "QuotaTooSmall: ask for fewer GPUs or replicas, or lower autoscaling.maxReplicas. PriorityTooLow: give "
        "the service a higher priority. Otherwise ask the operator to change the quota, which the message names."
    ),
    "PriorityTooLow": (
        "QuotaTooSmall: ask for fewer GPUs or replicas, or lower autoscaling.maxReplicas. PriorityTooLow: give "
        "the service a higher priority. Otherwise ask the operator to change the quota, which the message names."
    ),
    "ServiceNotFound": (
        "In this order: create the service; use the runtime sglang or vllm; move the adapter to the namespace of "
        "the service; choose another name; choose another containerPort. The adapter is loaded as soon as the "
        "obstacle is gone."
    ),
    "RuntimeMismatch": (
        "In this order: create the service; use the runtime sglang or vllm; move the adapter to the namespace of "
        "the service; choose another name; choose another containerPort. The adapter is loaded as soon as the "
        "obstacle is gone."
    ),
    "NamespaceNotAllowed": (
        "In this order: create the service; use the runtime sglang or vllm; move the adapter to the namespace of "
        "the service; choose another name; choose another containerPort. The adapter is loaded as soon as the "
        "obstacle is gone."
    ),
    "AdapterNameTaken": (
        "In this order: create the service; use the runtime sglang or vllm; move the adapter to the namespace of "
        "the service; choose another name; choose another containerPort. The adapter is loaded as soon as the "
        "obstacle is gone."
    ),
    "PortTaken": (
        "In this order: create the service; use the runtime sglang or vllm; move the adapter to the namespace of "
        "the service; choose another name; choose another containerPort. The adapter is loaded as soon as the "
        "obstacle is gone."
    ),
    "FieldsIgnored": ("Remove the fields, or use a runtime that knows them."),
    "SpeculativeMissingModel": ("Create the Model, or name another one; or set what is missing."),
    "SpeculativeMissingConfig": ("Create the Model, or name another one; or set what is missing."),
    "PodsFinish": (
        "If answers take longer than that, raise controller_drain_seconds above the duration of the longest."
    ),
    "IdleCheckUnsupported": (
        "If answers take longer than that, raise controller_drain_seconds above the duration of the longest."
    ),
    "NotCreated": ("Install Pyrra, or use the indicator availability."),
    "SLOCreated": ("Install Pyrra, or use the indicator availability."),
    "IndicatorUnsupportedForRuntime": ("Install Pyrra, or use the indicator availability."),
    "MetalOutOfReach": ("Use another accelerator, or serve it on the Mac itself."),
    "InvalidSource": (
        "Correct the spec. files needs a repository of the hub or a folder of a bucket; sha256 needs a single file."
    ),
    "InvalidFileSet": (
        "Correct the spec. files needs a repository of the hub or a folder of a bucket; sha256 needs a single file."
    ),
    "SourceNotAllowed": (
        "If you are the operator, allow it with controller_allowed_remote_hosts or "
        "controller_allowed_host_path_roots (see Operating). Then delete the Job that the message names, or "
        "change the spec."
    ),
    "SourceNotFound": (
        "Correct the name or the token. The source is asked again after five minutes; for a sleeping KubeAI "
        "Model the intervals grow. To have it asked at once, change the spec, or after a change of a Secret "
        "remove the annotation: kubectl annotate models.kubeai.org/NAME slipway.inference/source-."
    ),
    "SourceNotChecked": (
        "Wait. If the cluster creates no pod for the Job, see PodsRejected. If SourceUnreachable stays, the "
        "cluster may be unable to reach the hub: name a mirror (see Closed networks), or a proxy for loaders."
    ),
    "SourceUnreachable": (
        "Wait. If the cluster creates no pod for the Job, see PodsRejected. If SourceUnreachable stays, the "
        "cluster may be unable to reach the hub: name a mirror (see Closed networks), or a proxy for loaders."
    ),
    "IntegrityCheckFailed": (
        "Find out whether the hash or the source is wrong. Then change the spec, or delete the Job that the "
        "message names."
    ),
    "CopyFailed": (
        "Fix what they name. The loader runs as user 65532 (controller_run_as_user), which must be allowed to "
        "read the file. If the pod does not start at all, its node may not have the file."
    ),
    "InspectionFailed": (
        "Fix what they name. The loader runs as user 65532 (controller_run_as_user), which must be allowed to "
        "read the file. If the pod does not start at all, its node may not have the file."
    ),
    "PVCNotFound": ("Create the claim, with the weights on its volume."),
    "PVCNotBound": ("Create the claim, with the weights on its volume."),
    "AdapterFailed": (
        "For a LoRAAdapter, make sure that path exists in the engine's container and has an adapter_config.json; "
        "SGLang refuses ranks above maxLoraRank, which is 64 by default. Otherwise correct the adapter's url or "
        "credentials. vLLM refuses ranks above --max-lora-rank, which is 16 unless args raises it. The adapter "
        "is retried automatically."
    ),
    "FileNotFound": ("Correct the path, or put the file where the engine looks for it."),
    "UnsupportedModel": ("Use a newer image of the engine, or another engine."),
    "BaseModelNotFound": (
        "Correct spec.model.name, create the model, or enable it. The service then continues by itself."
    ),
    "BaseModelDisabled": (
        "Correct spec.model.name, create the model, or enable it. The service then continues by itself."
    ),
    "BaseModelNotReady": (
        'Look at the model: kubectl describe clusterbasemodels.ome.io "$MODEL" shows the progress of each node '
        "and what went wrong. If its spec has no modelFormat, the field is filled in once a node has the files."
    ),
    "FineTunedWeightNotFound": (
        "Correct the name, use an engine that serves adapters, or merge the weights into the model and set "
        "merged_weights: true in the weight's configuration."
    ),
    "FineTunedWeightMismatch": (
        "Correct the name, use an engine that serves adapters, or merge the weights into the model and set "
        "merged_weights: true in the weight's configuration."
    ),
    "FineTunedWeightNotServed": (
        "Correct the name, use an engine that serves adapters, or merge the weights into the model and set "
        "merged_weights: true in the weight's configuration."
    ),
    "NoRuntime": (
        "Install a runtime for such models, set autoSelect: true in a suitable one, or name one in spec.runtime: "
        "a named runtime is used even if it was not made for the model."
    ),
    "RuntimeNotFound": (
        "Install a runtime for such models, set autoSelect: true in a suitable one, or name one in spec.runtime: "
        "a named runtime is used even if it was not made for the model."
    ),
    "RuntimeDisabled": (
        "Install a runtime for such models, set autoSelect: true in a suitable one, or name one in spec.runtime: "
        "a named runtime is used even if it was not made for the model."
    ),
    "RuntimeInvalid": (
        "Install a runtime for such models, set autoSelect: true in a suitable one, or name one in spec.runtime: "
        "a named runtime is used even if it was not made for the model."
    ),
    "Shadowed": ("Change the priority or the size range of one of them, or disable it."),
    "WaitingForBackends": ("Look at the InferenceServices that status.backends names."),
    "BackendsSilent": ("Look at the InferenceServices that status.backends names."),
    "NotAccepted": ("Look at the InferenceServices that status.backends names."),
    "ExternalNotServed": ("Write that, or remove the backend or the rule. LLMKube has all fields."),
    "ShadowNotServed": ("Write that, or remove the backend or the rule. LLMKube has all fields."),
    "BudgetNotServed": ("Write that, or remove the backend or the rule. LLMKube has all fields."),
    "ClassificationNotServed": ("Write that, or remove the backend or the rule. LLMKube has all fields."),
    "LatencyNotServed": ("Write that, or remove the backend or the rule. LLMKube has all fields."),
    "McpNotServed": ("Write that, or remove the backend or the rule. LLMKube has all fields."),
    "UnknownBackend": ("Correct what the message names."),
    "NoRoute": ("Correct what the message names."),
    "NotFailClosed": ("Correct what the message names."),
    "NoCapableBackend": ("Correct what the message names."),
    "TooManyTargets": ("Correct what the message names."),
    "NoRunner": ("Give the part a runner with an image, name a runtime that has the part, or remove the part."),
    "ModeNotServed": ("Write that. OME lists all differences."),
    "AcceleratorClassNotServed": ("Write that. OME lists all differences."),
    "CanaryNotServed": ("Write that. OME lists all differences."),
    "ScaleMetricNotServed": ("Write that. OME lists all differences."),
    "Deprecated": ("Replace it with spec.engine, spec.model and spec.runtime the next time you change the service."),
    "SourceNotServed": (
        "Correct spec.storage as the message says. The operator allows folders of the nodes, in the settings of OME."
    ),
    "PathNotAllowed": (
        "Correct spec.storage as the message says. The operator allows folders of the nodes, in the settings of OME."
    ),
    "PathTaken": (
        "Correct spec.storage as the message says. The operator allows folders of the nodes, in the settings of OME."
    ),
    "ClaimOfOtherNamespace": (
        "Correct spec.storage as the message says. The operator allows folders of the nodes, in the settings of OME."
    ),
    "InvalidRefreshInterval": ("Write a duration such as 10m or 1h30m. Less than 30 seconds counts as 30 seconds."),
    "Stale": (
        "Check what the message names: the address, a proxy or firewall in between, the other cluster's depot. "
        "The controller retries by itself, after seconds at first and then at refreshInterval."
    ),
    "Unreachable": (
        "Check what the message names: the address, a proxy or firewall in between, the other cluster's depot. "
        "The controller retries by itself, after seconds at first and then at refreshInterval."
    ),
    "Refused": (
        "Check what the message names: the address, a proxy or firewall in between, the other cluster's depot. "
        "The controller retries by itself, after seconds at first and then at refreshInterval."
    ),
    "Unauthorized": (
        "Correct the Secret that the message names; it is read again each time. The controller may read the "
        "Secrets that controller_catalog_secrets names; for imports, the depot may read those of "
        "depot_catalog_secrets, by default the same."
    ),
    "SecretMissing": (
        "Correct the Secret that the message names; it is read again each time. The controller may read the "
        "Secrets that controller_catalog_secrets names; for imports, the depot may read those of "
        "depot_catalog_secrets, by default the same."
    ),
    "SecretForbidden": (
        "Correct the Secret that the message names; it is read again each time. The controller may read the "
        "Secrets that controller_catalog_secrets names; for imports, the depot may read those of "
        "depot_catalog_secrets, by default the same."
    ),
    "InvalidCredentials": (
        "Correct the Secret that the message names; it is read again each time. The controller may read the "
        "Secrets that controller_catalog_secrets names; for imports, the depot may read those of "
        "depot_catalog_secrets, by default the same."
    ),
    "InvalidCatalog": ("Ask whoever runs that catalog. Check spec.url: it is the base URL, without /v1/catalog."),
    "InvalidGrant": ("Ask whoever runs that catalog. Check spec.url: it is the base URL, without /v1/catalog."),
    "Redirected": ("Ask whoever runs that catalog. Check spec.url: it is the base URL, without /v1/catalog."),
    "InvalidCertificate": (
        "Put the other cluster's authority into the Secret. A depot's authority is in the ConfigMap "
        "slipway-depot-ca of its namespace."
    ),
    "InvalidAuthority": (
        "Put the other cluster's authority into the Secret. A depot's authority is in the ConfigMap "
        "slipway-depot-ca of its namespace."
    ),
    "AddressNotAllowed": (
        "Put the other cluster's authority into the Secret. A depot's authority is in the ConfigMap "
        "slipway-depot-ca of its namespace."
    ),
    "WaitingForService": ("If it takes long, look at the service; the message repeats what that says."),
    "WaitingForPod": ("If it takes long, look at the service; the message repeats what that says."),
    "Running": ("If it takes long, look at the service; the message repeats what that says."),
    "RequestsFailed": (
        "Correct what it names, then delete the BenchmarkJob and create it again: one that has ended does not "
        "run a second time."
    ),
    "NoRequests": (
        "Correct what it names, then delete the BenchmarkJob and create it again: one that has ended does not "
        "run a second time."
    ),
    "NoResults": (
        "Correct what it names, then delete the BenchmarkJob and create it again: one that has ended does not "
        "run a second time."
    ),
    "BenchmarkFailed": (
        "Correct what it names, then delete the BenchmarkJob and create it again: one that has ended does not "
        "run a second time."
    ),
    "PodRemoved": (
        "Delete the BenchmarkJob and create it again. If the nodes are full, ask for less CPU in "
        "podOverride.resources: the default is half a core."
    ),
    "OutputNotServed": (
        "Write results to a claim or a bucket. Name a tokenizer of the hub in the field that the message gives."
    ),
    "TokenizerUnknown": (
        "Write results to a claim or a bucket. Name a tokenizer of the hub in the field that the message gives."
    ),
    "Unschedulable": (
        "Lower resources.requests (for a KubeAI Model, choose another resourceProfile or a smaller count), add "
        'nodes, or free some. persistentvolumeclaim "..." not found: create the claim that the Model\'s url '
        "names. If nodes are added on demand, raise controller_unschedulable_grace_seconds."
    ),
    "WaitingForGPU": (
        "Wait until others end, raise priority, or add nodes. If no node ever has that resource, check that its "
        "device plugin runs: kubectl describe nodes lists it under Allocatable."
    ),
    "NotYet": (
        "For CPU and memory, install metrics-server; for the engine's metrics, an adapter as LLMKube describes."
    ),
    "FailedGetResourceMetric": (
        "For CPU and memory, install metrics-server; for the engine's metrics, an adapter as LLMKube describes."
    ),
    "FailedGetPodsMetric": (
        "For CPU and memory, install metrics-server; for the engine's metrics, an adapter as LLMKube describes."
    ),
    "PodsRejected": (
        "Follow the message. With a quota on limits.memory, every Model needs resources.limits.memory. Krypton's "
        "pods meet the restricted Pod Security Standard; for those of KubeAI's Models, and the Job that fills a "
        'cache, see modelServerPods (see KubeAI). serviceaccount "..." not found: create that account in the '
        "Model's namespace, or remove serviceAccountName from modelServerPods. unable to validate against any "
        "security context constraint, on OpenShift: the Model asks for something that restricted-v2 does not "
        "allow, or the controller was installed without knowing that it runs on OpenShift; see who pods run as."
    ),
    "NameConflict": ("Rename one of the two, or use the long id namespace/name. See Who may have which id."),
    "NoId": ("Rename one of the two, or delete the one that is not needed."),
    "NotRouted": (
        "Ask the operator to label the namespace so that routedNamespaces selects it, or create the Model in one "
        "that is served: who may have which id."
    ),
}
