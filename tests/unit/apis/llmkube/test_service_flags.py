"""Engine arguments of an InferenceService: a test for each row of the table of fields."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from .services import GGUF, HUB, NEWEST, ONE_GPU, READY, VLLM, container, line, model, pod, refusal, unused, world


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"contextSize": 4096}, "--ctx-size 4096"),
        ({"parallelSlots": 4}, "--parallel 4"),
        ({"jinja": True}, "--jinja"),
        ({"cacheTypeK": "q8_0"}, "--cache-type-k q8_0"),
        ({"cacheTypeV": "q4_0"}, "--cache-type-v q4_0"),
        ({"cacheTypeK": "q8_0", "cacheTypeCustomK": "turbo3"}, "--cache-type-k turbo3"),
        ({"moeCPUOffload": True}, "--cpu-moe"),
        ({"moeCPULayers": 7}, "--n-cpu-moe 7"),
        ({"noKvOffload": True}, "--no-kv-offload"),
        ({"noWarmup": True}, "--no-warmup"),
        ({"reasoningBudget": 0}, "--reasoning-budget 0"),
        ({"reasoningBudget": 9, "reasoningBudgetMessage": "Stop."}, "--reasoning-budget-message Stop."),
        ({"metadataOverrides": ["a=int:1", "b=bool:true"]}, "--override-kv a=int:1 --override-kv b=bool:true"),
        ({"tensorOverrides": ["exps=CPU", "x=CUDA0"]}, "--override-tensor exps=CPU --override-tensor x=CUDA0"),
        ({"batchSize": 512}, "--batch-size 512"),
        ({"uBatchSize": 64}, "--ubatch-size 64"),
        ({"ropeScaling": {"type": "yarn", "factor": "2.5"}}, "--rope-scaling yarn --rope-scale 2.5"),
        ({"ropeScaling": {"type": "linear", "originalContext": 2048}}, "--rope-scaling linear --yarn-orig-ctx 2048"),
        ({"flashAttention": True, **ONE_GPU}, "--flash-attn on"),
        (ONE_GPU, "--n-gpu-layers 99"),
        ({}, "--host ::"),
        ({"bindAddress": "0.0.0.0"}, "--host 0.0.0.0"),
        ({"containerPort": 9000, "endpoint": {"port": 80}}, "--port 9000"),
        ({"endpoint": {"port": 8081}}, "--port 8081"),
        ({"mode": "embedding"}, "--embedding --pooling last --cache-ram 0"),
        ({"mode": "rerank"}, "--reranking --embedding --pooling rank --cache-ram 0"),
        ({"extraArgs": ["--seed", "42"]}, "--seed 42"),
        ({}, "--alias chat"),
        ({}, "--metrics"),
    ],
)
def test_llama_cpp_gets_each_field(spec: dict[str, Any], words: str) -> None:
    assert f" {words} " in f" {line(**spec)} "


@pytest.mark.parametrize(
    ("spec", "flag"),
    [
        ({"jinja": False, "moeCPUOffload": False, "noKvOffload": False, "noWarmup": False}, "--jinja"),
        ({"moeCPULayers": 0}, "--n-cpu-moe"),
        ({"reasoningBudgetMessage": "Stop."}, "--reasoning-budget-message"),
        ({"flashAttention": True}, "--flash-attn"),
        ({}, "--n-gpu-layers"),
        (ONE_GPU, "--split-mode"),
        ({"mode": "chat"}, "--pooling"),
        ({"ropeScaling": {"type": "yarn", "factor": "2"}, "extraArgs": ["--rope-scaling", "none"]}, "--rope-scale "),
    ],
)
def test_llama_cpp_gets_no_meaningless_settings(spec: dict[str, Any], flag: str) -> None:
    assert flag not in line(**spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"parallelSlots": 16}, "--max-num-seqs 16"),
        ({"vllmConfig": {"tensorParallelSize": 2}, "resources": {"gpu": 4}}, "--tensor-parallel-size 2"),
        ({"resources": {"gpu": 4}}, "--tensor-parallel-size 4"),
        ({"vllmConfig": {"tensorParallelSize": 2}}, "--tensor-parallel-size 2"),
        ({"vllmConfig": {"maxModelLen": 4096}}, "--max-model-len 4096"),
        ({"vllmConfig": {"quantization": "nvfp4"}}, "--quantization nvfp4"),
        ({"vllmConfig": {"dtype": "float16"}}, "--dtype float16"),
        ({"vllmConfig": {"kvCacheDtype": "fp8_e4m3"}}, "--kv-cache-dtype fp8_e4m3"),
        ({"vllmConfig": {"kvCacheDtype": "fp8_e4m3", "kvCacheCustomDtype": "turbo2"}}, "--kv-cache-dtype turbo2"),
        ({"vllmConfig": {"enablePrefixCaching": True}}, "--enable-prefix-caching"),
        ({"vllmConfig": {"enableChunkedPrefill": True}}, "--enable-chunked-prefill"),
        ({"vllmConfig": {"enableExpertParallel": True}}, "--enable-expert-parallel"),
        ({"vllmConfig": {"maxNumBatchedTokens": 4096}}, "--max-num-batched-tokens 4096"),
        ({"vllmConfig": {"attentionBackend": "FLASHINFER"}}, "--attention-backend FLASHINFER"),
        ({"vllmConfig": {"cpuOffloadGB": 4}, **ONE_GPU}, "--cpu-offload-gb 4"),
        ({"vllmConfig": {"gpuMemoryUtilization": 0.95}, **ONE_GPU}, "--gpu-memory-utilization 0.95"),
        ({"extraArgs": ["--seed", "1"]}, "--seed 1"),
        ({}, "acme/tiny --revision v2 --host :: --port 8000 --served-model-name chat acme/tiny"),
    ],
)
def test_vllm_gets_each_field(spec: dict[str, Any], words: str) -> None:
    assert f" {words} " in f" {line(**VLLM, **spec)} "


@pytest.mark.parametrize(
    ("config", "flag"),
    [
        ({"kvCacheDtype": "auto"}, "--kv-cache-dtype"),
        ({"enablePrefixCaching": False}, "prefix-caching"),
        ({"tensorParallelSize": 1}, "--tensor-parallel-size"),
        ({"cpuOffloadGB": 4}, "--cpu-offload-gb"),
        ({"gpuMemoryUtilization": 0.9}, "--gpu-memory-utilization"),
        ({"speculative": {"enabled": False, "model": "draft"}}, "speculative"),
    ],
)
def test_vllm_gets_no_meaningless_settings(config: dict[str, Any], flag: str) -> None:
    assert flag not in line(**VLLM, vllmConfig=config)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"tgiConfig": {"quantize": "awq"}}, "--quantize awq"),
        ({"tgiConfig": {"maxInputLength": 100}}, "--max-input-length 100"),
        ({"tgiConfig": {"maxTotalTokens": 200}}, "--max-total-tokens 200"),
        ({"tgiConfig": {"dtype": "bfloat16"}}, "--dtype bfloat16"),
        ({"resources": {"gpu": 2}}, "--num-shard 2"),
        ({}, "--model-id acme/tiny --revision v2 --hostname :: --port 80"),
    ],
)
def test_tgi_gets_each_field(spec: dict[str, Any], words: str) -> None:
    assert f" {words} " in f" {line(runtime='tgi', model=HUB, **spec)} "


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"tensorParallelSize": 2}, "--tp-size 2"),
        ({"expertParallelSize": 2}, "--ep-size 2"),
        ({"dataParallelSize": 2}, "--dp-size 2"),
        ({"contextLength": 8192}, "--context-length 8192"),
        ({"memFractionStatic": 0.8}, "--mem-fraction-static 0.8"),
        ({"chunkedPrefillSize": 512}, "--chunked-prefill-size 512"),
        ({"maxRunningRequests": 8}, "--max-running-requests 8"),
        ({"quantization": "fp8"}, "--quantization fp8"),
        ({"kvCacheDtype": "fp8_e5m2"}, "--kv-cache-dtype fp8_e5m2"),
        ({"kvCacheDtype": "fp8_e5m2", "kvCacheCustomDtype": "turbo"}, "--kv-cache-dtype turbo"),
        ({"attentionBackend": "flashinfer"}, "--attention-backend flashinfer"),
        ({"attentionBackend": "flash_attn"}, "--attention-backend fa3"),
        ({"toolCallParser": "hermes"}, "--tool-call-parser hermes"),
        ({"toolCallParser": "qwen3"}, "--tool-call-parser qwen25"),
        ({"reasoningParser": "deepseek-r1"}, "--reasoning-parser deepseek-r1"),
        ({"chatTemplate": "chatml"}, "--chat-template chatml"),
        ({"loraAdapters": [{"name": "a", "path": "/a"}, {"name": "b", "path": "/b"}]}, "--lora-paths a=/a b=/b"),
        ({"loraModules": ["c=/c", "a=/x"], "loraAdapters": [{"name": "a", "path": "/a"}]}, "--lora-paths c=/c a=/a"),
        ({"maxLoraRank": 64}, "--max-lora-rank 64"),
        ({"loraTargetModules": ["q_proj", "v_proj"]}, "--lora-target-modules q_proj v_proj"),
        ({"logLevel": "debug"}, "--log-level debug"),
        ({"trustRemoteCode": True}, "--trust-remote-code"),
        ({"skipTokenizerInit": True}, "--skip-tokenizer-init"),
    ],
)
def test_sglang_gets_each_field(config: dict[str, Any], words: str) -> None:
    assert f" {words} " in f" {line(runtime='sglang', model=HUB, sglangConfig=config, resources={'gpu': 2})} "


def test_sglang_proposes_tokens_only_if_all_required_fields_are_set() -> None:
    whole = {"enabled": True, "algorithm": "EAGLE3", "draftModelPath": "a/b", "numSteps": 3, "eagleTopK": 2}
    flags = line(runtime="sglang", model=HUB, sglangConfig={"speculative": whole | {"acceptThresholdAcc": 0.5}})
    assert "--speculative-algorithm EAGLE3 --speculative-draft-model-path a/b --speculative-num-steps 3" in flags
    assert "--speculative-eagle-topk 2 --speculative-num-draft-tokens 4 --speculative-accept-threshold-acc 0.5" in flags
    for missing in ("enabled", "algorithm", "draftModelPath"):
        part = {name: value for name, value in whole.items() if name != missing}
        assert "--speculative" not in line(runtime="sglang", model=HUB, sglangConfig={"speculative": part})


def test_default_behavior_of_sglang_needs_no_argument() -> None:
    config = {"enablePrefixCaching": True}
    assert "prefix" not in line(runtime="sglang", model=HUB, sglangConfig=config)
    assert "enablePrefixCaching" not in unused(runtime="sglang", model=HUB, sglangConfig=config)


def test_sglangs_own_fields_go_before_those_of_every_runtime() -> None:
    spec = {"contextSize": 4096, "sglangConfig": {"contextLength": 8192}}
    assert line(runtime="sglang", model=HUB, **spec).count("--context-length") == 1
    assert "--context-length 8192" in line(runtime="sglang", model=HUB, **spec)
    assert "contextSize (sglangConfig.contextLength takes precedence)" in unused(runtime="sglang", model=HUB, **spec)


def test_llama_cpp_gets_a_draft_model() -> None:
    draft = model("draft", {"source": "https://models.example/draft.gguf"}, READY | {"path": "/models/ab/draft.gguf"})
    decoding = {"type": "draft", "draftModelRef": "draft", "nDraftMax": 3, "pMin": 0.5}
    flags = line(draft, speculativeDecoding=decoding)
    assert "--spec-type draft-simple -md /models/ab/draft.gguf --spec-draft-n-max 3 --spec-draft-p-min 0.5" in flags
    assert "--spec-type draft-mtp " in line(speculativeDecoding={"type": "mtp"})
    companion = {"source": "hf://acme/tiny", "files": ["a.gguf", "eagle.gguf"]}
    beside = line(model=companion, speculativeDecoding={"type": "draft-eagle3", "draftModel": "eagle.gguf"})
    assert re.search(r"--spec-type draft-eagle3 -md /models/[0-9a-f]{16}/eagle.gguf", beside)
    for off in ("none", "disabled"):
        assert "--spec" not in line(speculativeDecoding={"type": off, "nDraftMax": 3})


@pytest.mark.parametrize(
    ("decoding", "reason"),
    [
        ({"type": "draft", "draftModelRef": "nowhere"}, "ModelNotFound"),
        ({"type": "draft", "draftModel": "other.gguf"}, "InvalidSpec"),
    ],
)
def test_a_draft_model_that_is_not_there_is_refused(decoding: dict[str, Any], reason: str) -> None:
    assert refusal(speculativeDecoding=decoding).reason == reason


def test_another_runtime_than_llama_cpp_has_no_use_for_its_draft_model() -> None:
    decoding = {"speculativeDecoding": {"type": "draft", "draftModelRef": "nowhere"}}
    assert "speculativeDecoding (" in unused(**VLLM, **decoding)
    assert "nowhere" not in line(**VLLM, **decoding)


@pytest.mark.parametrize(
    "spec",
    [
        {"mode": "embedding"},
        {"mode": "rerank"},
        {"endpoint": {"path": "/v1/embeddings"}},
        {"endpoint": {"path": "/v1/rerank/"}},
        {"extraArgs": ["--embeddings"]},
        {"extraArgs": ["--is-embedding"]},
    ],
)
def test_sglang_embeds_where_mode_path_or_arguments_say_so(spec: dict[str, Any]) -> None:
    assert line(runtime="sglang", model=HUB, **spec).count("--is-embedding") == 1
    assert "--is-embedding" not in line(runtime="sglang", model=HUB, mode="chat", endpoint={"path": "/v1/embeddings"})


@pytest.mark.parametrize(("bind", "address"), [({}, "0.0.0.0"), ({"bindAddress": "::"}, "::")])
def test_sglang_listens_on_ipv4_by_default(bind: dict[str, Any], address: str) -> None:
    assert f"--host {address} " in line(runtime="sglang", model=HUB, **bind)


def test_llama_cpp_embeds_only_where_mode_or_arguments_say_so() -> None:
    assert "--embedding" not in line(endpoint={"path": "/v1/embeddings"})


def test_personaplex_and_generic_get_their_fields() -> None:
    own = {"personaPlexConfig": {"quantize4Bit": True, "cpuOffload": True}, "image": "own:1"}
    assert line(runtime="personaplex", model=NEWEST, **own) == (
        "--ssl /app/ssl --port 8998 --hf-repo acme/tiny --quantize-4bit --cpu-offload"
    )
    snapshot = world(runtime="generic", image="own:1", command=["serve"], args=["--all", "mine"])
    assert (container(snapshot)["command"], container(snapshot)["args"]) == (["serve"], ["--all", "mine"])


@pytest.mark.parametrize("flag", ["--parallel", "-np", "--parallel=3"])
def test_a_flag_of_the_users_own_is_not_set_twice(flag: str) -> None:
    words = line(parallelSlots=4, extraArgs=[flag, "3"])
    assert "--parallel 4" not in words
    assert f"parallelSlots (extraArgs has {flag.partition('=')[0]})" in unused(parallelSlots=4, extraArgs=[flag, "3"])


def test_typed_fields_come_before_the_users_arguments_in_an_order_that_stays() -> None:
    fields = {"jinja": True, "contextSize": 4096, "batchSize": 8, "extraArgs": ["--seed", "1"]}
    turned = dict(reversed(fields.items()))
    assert line(**fields) == line(**turned)
    assert line(**fields).endswith("--ctx-size 4096 --jinja --batch-size 8 --seed 1 --metrics")


@pytest.mark.parametrize(
    ("gpu", "gpus", "words"),
    [
        ({}, 2, "--split-mode layer --tensor-split 1,1"),
        ({}, 8, "--split-mode layer --tensor-split 1,1,1,1,1,1,1,1"),
        ({"sharding": {"strategy": "tensor"}}, 2, "--split-mode row --tensor-split 1,1"),
        ({"sharding": {"strategy": "pipeline"}}, 2, "--split-mode layer"),
        ({"sharding": {"strategy": "none"}}, 2, "--split-mode none"),
        ({"sharding": {"layerSplit": ["0-24", "25-39"]}}, 2, "--tensor-split 5,3"),
        ({"sharding": {"layerSplit": ["0-9", "10-19", "20-39"]}}, 3, "--tensor-split 1,1,2"),
        ({"sharding": {"layerSplit": ["0-24"]}}, 2, "--tensor-split 1,1"),
        ({"sharding": {"layerSplit": ["0-24", "x"]}}, 2, "--tensor-split 1,1"),
        ({"sharding": {"layerSplit": ["24-0", "25-39"]}}, 2, "--tensor-split 1,1"),
        ({"layers": 20}, 1, "--n-gpu-layers 20"),
        ({"layers": -1}, 1, "--n-gpu-layers 99"),
    ],
)
def test_layers_are_spread_over_gpus(gpu: dict[str, Any], gpus: int, words: str) -> None:
    spec = {**GGUF, "hardware": {"accelerator": "cuda", "gpu": {"count": gpus, **gpu}}}
    assert f" {words} " in f" {line(model=spec)} "


def test_speculative_decoding_names_the_draft_models_path_and_never_its_resource() -> None:
    spec = {"speculative": {"enabled": True, "model": "draft", "numSpeculativeTokens": 3}}
    draft = model("draft", {"source": "s3://models/draft", "format": "safetensors"}, READY | {"path": "/models/ab"})
    args = container(world(draft, **VLLM, vllmConfig=spec))["args"]
    speculative_config = json.loads(args[args.index("--speculative-config") + 1])
    assert speculative_config == {"model": "/models/ab", "num_speculative_tokens": 3}
    assert "--speculative-model" not in args
    claimed = model("draft", {"source": "pvc://small/draft", "format": "safetensors"})
    snapshot = world(claimed, runtime="vllm", model={**HUB, "source": "pvc://large/big"}, vllmConfig=spec)
    mounts = {mount["mountPath"]: mount["name"] for mount in container(snapshot)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod(snapshot)["spec"]["volumes"]}
    assert volumes[mounts["/draft-source"]]["persistentVolumeClaim"]["claimName"] == "small"
    assert volumes[mounts["/model-source"]]["persistentVolumeClaim"]["claimName"] == "large"


def test_a_name_of_the_users_own_is_one_more_name_of_a_model_of_vllm() -> None:
    args = line(**VLLM, extraArgs=["--served-model-name", "mine", "ours", "--seed", "1"])
    assert args.endswith("--seed 1 --served-model-name chat acme/tiny mine ours")
    assert line(**VLLM, extraArgs=["--served_model_name=mine"]).endswith("--served-model-name chat acme/tiny mine")


@pytest.mark.parametrize(
    ("expected", "repository"), [("Q8_0", "acme/tiny:Q8_0"), ("4 bits", "acme/tiny"), ("", "acme/tiny")]
)
def test_llama_cpp_fetches_the_file_of_the_models_quantization(expected: str, repository: str) -> None:
    assert f"--hf-repo {repository} " in line(model={"source": "acme/tiny", "quantization": expected})


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"runtime": "tgi", "model": HUB, "jinja": True}, "jinja"),
        ({"runtime": "vllm", "model": HUB, "ropeScaling": {"type": "yarn"}}, "ropeScaling.type"),
        ({"vllmConfig": {"maxModelLen": 5}}, "vllmConfig"),
        ({"args": ["x"]}, "args"),
        ({"runtime": "generic", "image": "own:1", "extraArgs": ["x"]}, "extraArgs"),
        ({"flashAttention": True}, "flashAttention"),
        ({"runtime": "vllm", "model": HUB, "vllmConfig": {"cpuOffloadGB": 2}}, "vllmConfig.cpuOffloadGB"),
        ({"reasoningBudgetMessage": "x"}, "reasoningBudgetMessage"),
    ],
)
def test_a_field_that_has_no_effect_is_reported(spec: dict[str, Any], field: str) -> None:
    assert f" {field} (" in unused(**spec)


def test_a_service_that_uses_all_its_fields_reports_no_unused_field() -> None:
    assert not unused(contextSize=4096, jinja=True, flashAttention=True, **ONE_GPU)


OLD_FLAG: dict[str, Any] = {**VLLM, "extraArgs": ["--disable-log-requests", "--seed", "1"]}


def test_flags_that_the_default_image_no_longer_has_are_left_out_and_named() -> None:
    assert line(**OLD_FLAG).endswith("--seed 1")
    assert "--disable-log-requests" not in line(**OLD_FLAG)
    assert "extraArgs --disable-log-requests" in unused(**OLD_FLAG)


@pytest.mark.parametrize("own", [{"image": "vllm/vllm-openai:v0.33.0"}, {"command": ["vllm", "serve"]}])
def test_with_an_image_or_command_of_the_author_every_flag_stays(own: dict[str, Any]) -> None:
    assert "--disable-log-requests" in line(**OLD_FLAG, **own)
