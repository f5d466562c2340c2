# Copyright: (c) 2026, The slipway.inference authors
# Simplified BSD License (see LICENSES/BSD-2-Clause.txt or https://opensource.org/licenses/BSD-2-Clause)
# SPDX-License-Identifier: BSD-2-Clause

# Private to this collection: it may change in any release.
# Written by `make generate` from docs/reference/troubleshooting.md; do not edit.

"""What to do about each reason of a condition, in the words of the page about it."""

from __future__ import annotations

from collections.abc import Mapping

ADVICE: Mapping[str, str] = {
    "WaitingForPods": (
        "Wait. Follow the engine's log to see the download. Where it takes longer than startupTimeout the reason "
        "becomes StartupTimeout."
    ),
    "RollingOut": (
        "Wait. When a new pod cannot start, the reason changes to the failure and the old pods keep answering: "
        "phase stays Ready."
    ),
    "Retrying": (
        "Wait: the controller retries. If the reason stays, the message has the API server's words: an admission "
        "webhook that does not answer is the usual cause."
    ),
    "LoadingCache": (
        "Wait. What keeps the loader's pod from running is told as for a model's pod: Unschedulable, for "
        "example, when the claim finds no volume."
    ),
    "LoadingAdapters": (
        "Wait. Where it stays so, look for loader in pod in the controller's log. status 403 with a time in it "
        "means that the clocks of two nodes differ by more than a minute; the signature is not the controller's "
        "goes away when the pod is replaced (see Orders to loaders)."
    ),
    "LoadingAdapter": (
        "Wait. The first adapter of a service replaces its pods, unless extraArgs has --enable-lora. Where it "
        "stays so, the status of the InferenceService says what that waits for."
    ),
    "ServiceNotReady": (
        "Wait. The first adapter of a service replaces its pods, unless extraArgs has --enable-lora. Where it "
        "stays so, the status of the InferenceService says what that waits for."
    ),
    "Leaving": ("Wait. After ten minutes it goes in any case, and its folder models/<name>-<uid> stays on the volume."),
    "InUse": (
        "Delete those services, or give them another Model, or set suspend: true. A deletion cannot be taken "
        "back; but another Model of the same source, under another name, takes the weights over without a "
        "download."
    ),
    "ModelLeaving": ("Give the service another Model, or delete it: the Model waits for that (see InUse)."),
    "InvalidSpec": ("Correct the field. Nothing that ran before was touched."),
    "NotAllowed": (
        "Take the field out of the spec. As the operator, where the authors are to be trusted with it: set the "
        "variable that belongs to the setting. Where it came with an upgrade from 0.4.0, that page has the "
        "variables with which all is as it was."
    ),
    "InvalidObject": (
        "Correct the object, or delete it: the fault is over at once. If the message has the name of a Python "
        "exception, report it, with the object."
    ),
    "InvalidArgument": (
        'Correct it. One argument is one list item: --ctx-size and "4096" are two. An image of your own may be '
        "of another version; ask it with --help."
    ),
    "UnknownProfile": (
        "Correct the name, or add the profile under resourceProfiles (see KubeAI's system configuration). What "
        "ran before serves on."
    ),
    "UnknownCacheProfile": ("Correct the name, or add the profile."),
    "NoImage": (
        "Add one under modelServers, or set image in the Model; of OME in the runner of the service or the runtime."
    ),
    "InvalidConfig": ("Correct it, as KubeAI's system configuration says. It is read anew at once."),
    "NameTaken": ("Give the Model another name, or remove the other object. Then it goes on within a minute."),
    "MissingKind": ("Install it. The Model goes on within half a minute."),
    "Invalid": ("Correct what the message names. After a change of the controller's rights run the site playbook."),
    "Forbidden": ("Correct what the message names. After a change of the controller's rights run the site playbook."),
    "NotFound": ("Correct what the message names. After a change of the controller's rights run the site playbook."),
    "ImagePullBackOff": (
        "Check spec.image, and from a node whether the registry answers. For a private registry name a Secret of "
        "the type kubernetes.io/dockerconfigjson in imagePullSecrets, in the Model's namespace. In a closed "
        "network set slipway_engine_images (see Closed networks)."
    ),
    "CreateContainerConfigError": ("Create it in the Model's namespace. The pod goes on by itself."),
    "CrashLoopBackOff": (
        "Read the lines. Often: the file is no GGUF, or of an architecture that this version of llama.cpp does "
        "not know (take a newer image); an image of your own does not run as user 65532 (permission denied)."
    ),
    "OOMKilled": (
        "Raise the limit (resources.limits.memory; for KubeAI that of the resource profile, or its count), or "
        "take a smaller quantization, a smaller --ctx-size or fewer --parallel. The download cache does not "
        "count, as it lies on disk."
    ),
    "OutOfGpuMemory": (
        "Ask for a shorter context (--max-model-len, --ctx-size), a quantized model, more GPUs with "
        "--tensor-parallel-size, or larger ones. Where another process uses the GPU, lower "
        "--gpu-memory-utilization."
    ),
    "NoGpu": (
        "If the GPU is AMD's or Intel's, name the groups of its device files. See that the resource profile asks "
        "for a GPU and that the node's driver is as new as the image wants. On nodes without a GPU take a "
        "profile and an image for processors."
    ),
    "IllegalInstruction": ("Choose other nodes, or an image that is built for these."),
    "StartupTimeout": (
        "Raise startupTimeout, or give the KubeAI Model a cache, where the message's log lines show a download "
        "or loading under way. Otherwise look for what it waits for: a hub that does not answer, a disk that is "
        "slow."
    ),
    "CacheLoadFailed": (
        "What the last words say: correct the url, the Secret with the credentials, the size of the claim. Where "
        "the Secret's content alone was wrong, delete the Job to try at once."
    ),
    "DownloadStarted": ("Wait. What keeps the loader's pod from running is told as for a model's pod."),
    "CopyStarted": ("Wait. What keeps the loader's pod from running is told as for a model's pod."),
    "IntegrityCheckStarted": ("Wait. What keeps the loader's pod from running is told as for a model's pod."),
    "Suspended": ("suspend: false, when it is to serve again."),
    "ModelNotReady": ("Wait. The Model's own status says how far it is."),
    "NotScheduled": ("Wait, or see what the other conditions say."),
    "ModelNotFound": ("Correct modelRef, or the Model: kubectl describe models.inference.llmkube.dev."),
    "InvalidModel": ("Correct modelRef, or the Model: kubectl describe models.inference.llmkube.dev."),
    "ModelFailed": ("Correct modelRef, or the Model: kubectl describe models.inference.llmkube.dev."),
    "QuotaExceeded": (
        "Wait: the service starts when others have left enough GPUs. Else ask for fewer, suspend another service "
        "of the namespace, or ask the operator for a larger quota. kubectl get gpuquotas --all-namespaces shows "
        "what is in use."
    ),
    "QuotaReserved": (
        "Wait: the service starts when others have left enough GPUs. Else ask for fewer, suspend another service "
        "of the namespace, or ask the operator for a larger quota. kubectl get gpuquotas --all-namespaces shows "
        "what is in use."
    ),
    "QuotaTooSmall": (
        "QuotaTooSmall: ask for fewer GPUs or replicas, or lower autoscaling.maxReplicas. PriorityTooLow: give "
        "the service a higher priority. Else ask the operator to change the quota; the message names it."
    ),
    "PriorityTooLow": (
        "QuotaTooSmall: ask for fewer GPUs or replicas, or lower autoscaling.maxReplicas. PriorityTooLow: give "
        "the service a higher priority. Else ask the operator to change the quota; the message names it."
    ),
    "ServiceNotFound": (
        "Make the service; take the runtime sglang or vllm; move the adapter to the namespace of the service; "
        "choose another name; choose another containerPort. As soon as nothing is in its way it is loaded."
    ),
    "RuntimeMismatch": (
        "Make the service; take the runtime sglang or vllm; move the adapter to the namespace of the service; "
        "choose another name; choose another containerPort. As soon as nothing is in its way it is loaded."
    ),
    "NamespaceNotAllowed": (
        "Make the service; take the runtime sglang or vllm; move the adapter to the namespace of the service; "
        "choose another name; choose another containerPort. As soon as nothing is in its way it is loaded."
    ),
    "AdapterNameTaken": (
        "Make the service; take the runtime sglang or vllm; move the adapter to the namespace of the service; "
        "choose another name; choose another containerPort. As soon as nothing is in its way it is loaded."
    ),
    "PortTaken": (
        "Make the service; take the runtime sglang or vllm; move the adapter to the namespace of the service; "
        "choose another name; choose another containerPort. As soon as nothing is in its way it is loaded."
    ),
    "FieldsIgnored": ("Remove the fields, or take the runtime that knows them."),
    "RetiredFlags": (
        "Remove the flags from spec.args, or write the successor that the message names. If you need the old "
        "flag, set spec.image to a version that has it: the controller does not change the arguments of an image "
        "that you choose."
    ),
    "SpeculativeMissingModel": ("Make the Model, or name another one; say what is missing."),
    "SpeculativeMissingConfig": ("Make the Model, or name another one; say what is missing."),
    "IdleCheckUnsupported": ("Raise controller_drain_seconds above the length of your longest answers."),
    "NotCreated": ("Install Pyrra, or take the indicator availability."),
    "SLOCreated": ("Install Pyrra, or take the indicator availability."),
    "IndicatorUnsupportedForRuntime": ("Install Pyrra, or take the indicator availability."),
    "MetalOutOfReach": ("Take another accelerator, or serve it on the Mac itself."),
    "InvalidSource": (
        "Correct the spec. files belong to a repository of the hub or a folder of a bucket; sha256 to one file."
    ),
    "InvalidFileSet": (
        "Correct the spec. files belong to a repository of the hub or a folder of a bucket; sha256 to one file."
    ),
    "SourceNotAllowed": (
        "As the operator: controller_allowed_remote_hosts or controller_allowed_host_path_roots (see Allowed "
        "sources). Then delete the Job that the message names, or change the spec."
    ),
    "SourceNotFound": ("Correct the name. It is looked for again every five minutes."),
    "IntegrityCheckFailed": (
        "Find out whether hash or source is wrong. Change the spec, or delete the Job that the message names."
    ),
    "UnsupportedSource": (
        "Copy the file again, with git lfs pull if it is a pointer. Then delete the Job that the message names, "
        "or change the spec. The controller reads files on a claim or a node again every five minutes."
    ),
    "CopyFailed": (
        "What they say. The loader runs as user 65532 (controller_run_as_user), which needs to be allowed to "
        "read the file. A pod that does not start at all may be on a node that has no such file."
    ),
    "InspectionFailed": (
        "What they say. The loader runs as user 65532 (controller_run_as_user), which needs to be allowed to "
        "read the file. A pod that does not start at all may be on a node that has no such file."
    ),
    "PVCNotFound": ("Make the claim, with the weights on its volume."),
    "PVCNotBound": ("Make the claim, with the weights on its volume."),
    "AdapterFailed": (
        "Of a LoRAAdapter, see that path is there in the engine's container, with an adapter_config.json in it; "
        "SGLang refuses ranks above maxLoraRank, which is 64 where nothing says it. Else correct the adapter's "
        "url or credentials. vLLM refuses ranks above --max-lora-rank, which is 16 unless args raises it. It is "
        "tried again by itself."
    ),
    "FileNotFound": ("Correct the path, or put the file where it is looked for."),
    "UnsupportedModel": ("Take a newer image of the engine, or another engine."),
    "BaseModelNotFound": ("Correct spec.model.name, make the model, or enable it. The service goes on by itself."),
    "BaseModelDisabled": ("Correct spec.model.name, make the model, or enable it. The service goes on by itself."),
    "BaseModelNotReady": (
        'Look at the model: kubectl describe clusterbasemodels.ome.io "$MODEL" says how far each node is and '
        "what went wrong. Where its spec has no modelFormat, that is filled in once a node has the files."
    ),
    "FineTunedWeightNotFound": (
        "Correct the name, take an engine that serves adapters, or merge the weights into the model and set "
        "merged_weights: true in the weight's configuration."
    ),
    "FineTunedWeightMismatch": (
        "Correct the name, take an engine that serves adapters, or merge the weights into the model and set "
        "merged_weights: true in the weight's configuration."
    ),
    "FineTunedWeightNotServed": (
        "Correct the name, take an engine that serves adapters, or merge the weights into the model and set "
        "merged_weights: true in the weight's configuration."
    ),
    "NoRuntime": (
        "Install a runtime for such models, set autoSelect: true in one that would do, or name one in "
        "spec.runtime: that one is taken though it was not made for the model."
    ),
    "RuntimeNotFound": (
        "Install a runtime for such models, set autoSelect: true in one that would do, or name one in "
        "spec.runtime: that one is taken though it was not made for the model."
    ),
    "RuntimeDisabled": (
        "Install a runtime for such models, set autoSelect: true in one that would do, or name one in "
        "spec.runtime: that one is taken though it was not made for the model."
    ),
    "RuntimeInvalid": (
        "Install a runtime for such models, set autoSelect: true in one that would do, or name one in "
        "spec.runtime: that one is taken though it was not made for the model."
    ),
    "Shadowed": ("Change the priority or the size range of one of them, or disable it."),
    "WaitingForBackends": ("Look at the InferenceServices that status.backends names."),
    "BackendsSilent": ("Look at the InferenceServices that status.backends names."),
    "NotAccepted": ("Look at the InferenceServices that status.backends names."),
    "ExternalNotServed": ("Write that, or take the backend or rule out. LLMKube has all fields."),
    "ShadowNotServed": ("Write that, or take the backend or rule out. LLMKube has all fields."),
    "BudgetNotServed": ("Write that, or take the backend or rule out. LLMKube has all fields."),
    "ClassificationNotServed": ("Write that, or take the backend or rule out. LLMKube has all fields."),
    "LatencyNotServed": ("Write that, or take the backend or rule out. LLMKube has all fields."),
    "McpNotServed": ("Write that, or take the backend or rule out. LLMKube has all fields."),
    "AuthNotServed": ("Write that, or take the backend or rule out. LLMKube has all fields."),
    "UnknownBackend": ("Correct what the message names."),
    "NoRoute": ("Correct what the message names."),
    "NotFailClosed": ("Correct what the message names."),
    "NoCapableBackend": ("Correct what the message names."),
    "TooManyTargets": ("Correct what the message names."),
    "NoRunner": ("Give the part a runner with an image, name a runtime that has the part, or take the part out."),
    "ModeNotServed": ("Write that. OME has all that differs."),
    "AcceleratorClassNotServed": ("Write that. OME has all that differs."),
    "CanaryNotServed": ("Write that. OME has all that differs."),
    "ScaleMetricNotServed": ("Write that. OME has all that differs."),
    "Deprecated": ("Write spec.engine, spec.model and spec.runtime in its place when you change it next."),
    "SourceNotServed": (
        "Correct spec.storage as the message says. Folders of the nodes are the operator's to allow, in the "
        "settings of OME."
    ),
    "PathNotAllowed": (
        "Correct spec.storage as the message says. Folders of the nodes are the operator's to allow, in the "
        "settings of OME."
    ),
    "PathTaken": (
        "Correct spec.storage as the message says. Folders of the nodes are the operator's to allow, in the "
        "settings of OME."
    ),
    "ClaimOfOtherNamespace": (
        "Correct spec.storage as the message says. Folders of the nodes are the operator's to allow, in the "
        "settings of OME."
    ),
    "NodeFull": (
        "Delete unused BaseModels, or select fewer nodes with spec.storage.nodeSelector. As the operator, use "
        "ClusterBaseModels for models of several namespaces: they have no such limit."
    ),
    "InvalidRefreshInterval": ("Write a duration such as 10m or 1h30m. Less than 30 seconds counts as 30 seconds."),
    "Stale": (
        "Follow the message: the address, a proxy or firewall between the two, the other cluster's depot. The "
        "controller asks again by itself, after seconds at first and then at refreshInterval."
    ),
    "Unreachable": (
        "Follow the message: the address, a proxy or firewall between the two, the other cluster's depot. The "
        "controller asks again by itself, after seconds at first and then at refreshInterval."
    ),
    "Refused": (
        "Follow the message: the address, a proxy or firewall between the two, the other cluster's depot. The "
        "controller asks again by itself, after seconds at first and then at refreshInterval."
    ),
    "Unauthorized": (
        "Correct the Secret that the message names; it is read anew for each look. The controller reads those "
        "that controller_catalog_secrets names, and for imports the depot those of depot_catalog_secrets, by "
        "default the same."
    ),
    "SecretMissing": (
        "Correct the Secret that the message names; it is read anew for each look. The controller reads those "
        "that controller_catalog_secrets names, and for imports the depot those of depot_catalog_secrets, by "
        "default the same."
    ),
    "SecretForbidden": (
        "Correct the Secret that the message names; it is read anew for each look. The controller reads those "
        "that controller_catalog_secrets names, and for imports the depot those of depot_catalog_secrets, by "
        "default the same."
    ),
    "InvalidCredentials": (
        "Correct the Secret that the message names; it is read anew for each look. The controller reads those "
        "that controller_catalog_secrets names, and for imports the depot those of depot_catalog_secrets, by "
        "default the same."
    ),
    "InvalidCatalog": ("Ask whoever runs that catalog. Check spec.url: it is the base URL, without /v1/catalog."),
    "InvalidGrant": ("Ask whoever runs that catalog. Check spec.url: it is the base URL, without /v1/catalog."),
    "Redirected": ("Ask whoever runs that catalog. Check spec.url: it is the base URL, without /v1/catalog."),
    "InvalidCertificate": (
        "Put the other cluster's authority into the Secret; a depot's is in the ConfigMap slipway-depot-ca of "
        "its namespace."
    ),
    "InvalidAuthority": (
        "Put the other cluster's authority into the Secret; a depot's is in the ConfigMap slipway-depot-ca of "
        "its namespace."
    ),
    "AddressNotAllowed": (
        "Put the other cluster's authority into the Secret; a depot's is in the ConfigMap slipway-depot-ca of "
        "its namespace."
    ),
    "WaitingForService": ("Look at the service if it takes long; the message has what that one says."),
    "WaitingForPod": ("Look at the service if it takes long; the message has what that one says."),
    "Running": ("Look at the service if it takes long; the message has what that one says."),
    "RequestsFailed": (
        "Correct what it names and make the BenchmarkJob anew: one that has ended is not run a second time."
    ),
    "NoRequests": (
        "Correct what it names and make the BenchmarkJob anew: one that has ended is not run a second time."
    ),
    "NoResults": ("Correct what it names and make the BenchmarkJob anew: one that has ended is not run a second time."),
    "BenchmarkFailed": (
        "Correct what it names and make the BenchmarkJob anew: one that has ended is not run a second time."
    ),
    "PodRemoved": (
        "Create the BenchmarkJob anew. Where the nodes are full, ask for less CPU in podOverride.resources: the "
        "default is half a core."
    ),
    "OutputNotServed": ("Write results to a claim or a bucket. Name a tokenizer of the hub where the message says."),
    "TokenizerUnknown": ("Write results to a claim or a bucket. Name a tokenizer of the hub where the message says."),
    "Unschedulable": (
        "Lower resources.requests (of a Model of KubeAI: choose another resourceProfile, or a smaller count of "
        'it), add nodes, or free some. persistentvolumeclaim "..." not found: make the claim that the Model\'s '
        "url names. Where nodes are added on demand raise controller_unschedulable_grace_seconds."
    ),
    "WaitingForGPU": (
        "Wait until others end, raise priority, or add nodes. Where no node ever has that resource, see that its "
        "device plugin runs: kubectl describe nodes lists it under Allocatable."
    ),
    "NotYet": ("For CPU and memory install metrics-server; for the engine's metrics an adapter, as LLMKube describes."),
    "FailedGetResourceMetric": (
        "For CPU and memory install metrics-server; for the engine's metrics an adapter, as LLMKube describes."
    ),
    "FailedGetPodsMetric": (
        "For CPU and memory install metrics-server; for the engine's metrics an adapter, as LLMKube describes."
    ),
    "PodsRejected": (
        "What the message says. A quota on limits.memory needs resources.limits.memory in every Model. Krypton's "
        "pods meet the restricted Pod Security Standard; for those of KubeAI's Models, and the Job that fills a "
        'cache, see modelServerPods (see KubeAI). serviceaccount "..." not found: make that account in the '
        "Model's namespace, or take serviceAccountName out of modelServerPods. unable to validate against any "
        "security context constraint, on OpenShift: the Model asks for what restricted-v2 does not allow, or the "
        "controller was installed without knowing where it is; see user and group of the pods."
    ),
    "NameConflict": ("Rename one of the two, or use the long id where it is another one. Who may have which id."),
    "NoId": ("Rename one of the two, or delete the one that is not needed."),
    "NotRouted": (
        "Have the operator label the namespace as routedNamespaces asks, or make the Model in one that is "
        "served: who may have which id."
    ),
}
