"""The original's own tables, if its reference folder is present: those that no other file covers, and the list of
uncovered ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipway.apis.ome import names
from slipway.apis.ome.components.overlay import components
from slipway.apis.ome.models.storage import parse_storage
from slipway.apis.ome.types.service import SERVICE
from slipway.kube.objects import SERVICE as KUBERNETES_SERVICE
from slipway.kube.objects import Object
from slipway.serving.contract.api import InvalidSpecError
from slipway.serving.contract.settings import Settings
from tests.schemas import faults, schema_of
from tests.unit.apis.ome import services
from tests.unit.apis.ome.cases import FOLDER, rows

ACCELERATORS = "AcceleratorClasses are not served"
ORACLE = "of Oracle's cloud alone: files that are decrypted or unpacked in the pod"
MIGRATION = "a switch of the original's manager; a predictor is always read"
NOT_TAKEN = {
    "TestAreModelSizeRangesEqual": "compares pointers of Go; runtimes that shadow each other have separate tests",
    "TestBuildInferenceServiceArgs": "with these arguments the tool cannot run; tests of benchmarks say what it gets",
    "TestCalculateBestFitScore": ACCELERATORS,
    "TestCalculateComputePerformanceTFLOPSScore": ACCELERATORS,
    "TestCalculateMemoryFitScore": ACCELERATORS,
    "TestCompareCosts": ACCELERATORS,
    "TestConvertToInferenceService_ErrorCases": "converts types of Go",
    "TestDefaultAcceleratorFetcher_FetchAcceleratorClasses": ACCELERATORS,
    "TestDefaultAcceleratorFetcher_GetAcceleratorClass": ACCELERATORS,
    "TestGetTFLOPSForPrecision": ACCELERATORS,
    "TestIsCohereCommand1TFewFTServing": ORACLE,
    "TestIsEmptyModelDirVolumeRequired": ORACLE,
    "TestIsOriginalModelVolumeMountNecessary": ORACLE,
    "TestPredictorMigrationWithEnvironmentVariable": MIGRATION,
    "TestResolveIngressConfig": "no Ingress is made for a service: the gateway is one for all",
    "TestSRValidateAnnotations": "no annotation of a runtime is refused, in the table as here",
    "TestSelectBestFit_Integration": ACCELERATORS,
    "TestSelectCheapest_CostTypeGrouping": ACCELERATORS,
    "TestSelectCheapest_Integration": ACCELERATORS,
    "TestShouldEnableMigration": MIGRATION,
    "TestValidateServingRuntimeAnnotationsComplete": "no annotation of a runtime is refused, in the table as here",
    "TestValidateServingRuntimeConfiguration": "workers of earlier versions' runtimes are judged with a service",
    "TestValidateServingRuntimeConfigurationComplete": "the same",
}
STORED = (
    *("TestGetStorageType", "TestNewObjectURI", "TestParseHuggingFaceStorageURI", "TestParsePVCStorageURI"),
    *("TestParseLocalStorageURI", "TestParseS3StorageURI", "TestParseGCSStorageURI", "TestParseGitHubStorageURI"),
    *("TestParseOCIStorageURI", "TestValidateStorageURIWithLocal", "TestValidateOCIStorageURI"),
)
NOT_SERVED = {
    "oci": "SourceNotServed",
    "az": "SourceNotServed",
    "github": "SourceNotServed",
    "local": "PathNotAllowed",
}
READ = ("pvc://my-pvc", "pvc://my-pvc/", "s3://my-bucket/results")
"""What a function of the original's refuses and is read here: a claim as a whole, and a bucket that is not Oracle's."""
TESTS = Path(__file__).parents[2]


def table(name: str) -> list[Any]:
    return [pytest.param(row, id=f"{name}: {row['name']}") for row in rows(name)]


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the original's tables are not here")
def test_every_table_is_taken_or_there_is_a_reason() -> None:
    tables = {path.stem for path in FOLDER.glob("*.json")}
    sources = "".join(path.read_text() for part in ("apis/ome", "engines") for path in (TESTS / part).glob("test_*.py"))
    covered_tables = {name for name in tables if f'"{name}"' in sources} | {
        f"TestDefaultComponents__default{name}" for name in ("Engine", "Router")
    }
    assert tables - covered_tables == set()
    assert NOT_TAKEN.keys() <= tables


@pytest.mark.parametrize("row", [row for name in STORED for row in table(name)])
def test_addresses_are_read_as_in_the_originals_tables(row: Object) -> None:
    """What the original reads and nothing serves is refused for that, and so are folders that no operator allows."""
    uri, expected = row["uri"], row.get("want") or row.get("expect") or {}
    namespace = (expected.get("Namespace") if isinstance(expected, dict) else "") or "models"
    model = services.model(namespace=namespace, storage={"storageUri": uri})
    scheme = uri.partition("://")[0]
    if scheme in NOT_SERVED or (row["wantErr"] and uri not in READ):
        with pytest.raises(InvalidSpecError) as refused:
            parse_storage(model, Settings())
        assert row["wantErr"] or refused.value.reason == NOT_SERVED[scheme]
        return
    model_storage = parse_storage(model, Settings())
    if isinstance(expected, dict) and "PVCName" in expected:
        assert model_storage.claim is not None
        assert (model_storage.claim.name, model_storage.sub_path) == (expected["PVCName"], expected["SubPath"])
    if isinstance(expected, dict) and "Region" in expected:
        assert model_storage.region == expected["Region"]
    if isinstance(expected, dict) and "ModelID" in expected:
        assert model_storage.url.removeprefix("hf://").partition("@")[0] == expected["ModelID"]
        assert model_storage.url.partition("@")[2] == ("" if expected["Branch"] == "main" else expected["Branch"])


@pytest.mark.parametrize("row", table("TestIsValidNamespace"))
def test_a_claims_namespace_is_the_models_own(row: Object) -> None:
    """For any text, pods reach only the claims of their namespace."""
    model = services.model(namespace="models", storage={"storageUri": f"pvc://{row['namespace']}:claim/a"})
    with pytest.raises(InvalidSpecError) as refused:
        parse_storage(model, Settings())
    assert refused.value.reason == ("ClaimOfOtherNamespace" if row["namespace"] else "InvalidSource")


@pytest.mark.parametrize("row", table("TestAddNodeSelectorForReadyModel"))
def test_pods_ask_for_nodes_with_the_model(row: Object) -> None:
    if not row["wantNodeSelector"]:  # there is no model, or no pod to speak of
        return
    metadata = row["baseModelMeta"]
    namespace = metadata.get("namespace", "")
    kind = names.BASE_MODEL if namespace else names.CLUSTER_BASE_MODEL
    assert names.node_label(kind, namespace, metadata["name"]) == row["wantLabelKey"]
    given = row["podSpec"].get("nodeSelector", {})
    model = services.model(metadata["name"], namespace=namespace and "models")
    world = services.world(
        None, model, services.runtime(), model={"name": metadata["name"]}, engine={"nodeSelector": given}
    )
    selector = services.find_child(world, "Deployment", "chat-engine")["spec"]["template"]["spec"]["nodeSelector"]
    label = names.node_label(kind, namespace and "models", metadata["name"])
    assert selector == {label: "Ready"} | {
        field: value for field, value in given.items() if "models.ome.io" not in field
    } | ({field: value for field, value in given.items() if "models.ome.io" in field})


@pytest.mark.parametrize("row", table("TestDetermineEntrypointComponent"))
def test_requests_go_to_the_router_or_else_to_the_engine(row: Object) -> None:
    spec = {part: {} for part in row["isvc"]["spec"] if part in ("engine", "decoder", "router")}
    service = services.find_child(services.world(services.service(**spec)), KUBERNETES_SERVICE, "chat")
    assert service["spec"]["selector"] == {"app": f"chat-{row['expectedEntrypoint']}"}


@pytest.mark.parametrize("row", table("TestGetTargetServicePort_ServiceNameResolution"))
def test_each_part_has_a_service_of_its_own(row: Object) -> None:
    spec = {part: {} for part in row["isvc"]["spec"] if part in ("engine", "router")}
    world = services.world(services.service(name="my-model", **spec))
    assert services.find_child(world, KUBERNETES_SERVICE, row["expectedServiceName"]) is not None


@pytest.mark.parametrize("row", table("TestDefaultComponents__defaultDecoder"))
def test_a_decoder_has_as_many_replicas_as_an_engine(row: Object) -> None:
    spec = {"decoder": {**row["decoder"], "runner": {"image": "a"}}}
    (component,) = components({"metadata": {"name": "chat"}, "spec": spec}, None)
    expected = (row["wantMinReplicas"], row["wantMaxReplicas"])
    assert (component.extension.min_replicas, component.extension.max_replicas) == expected


def refused(resource: Object, *others: Object) -> bool:
    """Whether the definition or the plan refuses a service."""
    schema = schema_of(SERVICE.manifest())["properties"]["spec"]
    if faults(schema, resource["spec"]):
        return True
    try:
        services.plan(services.world(resource, *others))
    except InvalidSpecError:
        return True
    return False


def objects(row: Object) -> tuple[Object, ...]:
    """Models and runtimes of a table, with what the API server would not take them without."""
    resources = []
    for one in row["objects"]:
        namespace, name = one["metadata"].get("namespace", ""), one["metadata"]["name"]
        spec = {field: value for field, value in one["spec"].items() if value is not None}
        if "supportedModelFormats" not in spec:
            resources.append(services.model(name, namespace=namespace, modelFramework=None, **spec))
            continue
        formats = [
            {
                **model_format,
                "modelFormat": model_format["modelFormat"]
                or {"name": model_format["name"], "version": model_format["version"]},
            }
            for model_format in spec["supportedModelFormats"]
        ]
        resources.append(services.runtime(name, namespace, supportedModelFormats=formats))
    return (*resources, services.runtime("disabled", disabled=True), services.model("other"))


def build_service(isvc: Object, **usual: Any) -> Object:
    """A service of a table, of which the tables have no more than what they look at."""
    resource = services.service(annotations=isvc["metadata"].get("annotations"))
    spec = {field: value for field, value in isvc["spec"].items() if field != "predictor"}
    resource["metadata"]["name"] = isvc["metadata"].get("name", "chat")
    resource["spec"] = (usual if not {"engine", "decoder"} & spec.keys() else {}) | spec
    return resource


@pytest.mark.parametrize(
    "row",
    [
        *table("TestValidateKEDAConfig"),
        *table("TestValidateInferenceService_ComprehensiveErrorPaths"),
        *table("TestInferenceServiceValidator_ValidateCreate"),
        *table("TestInferenceServiceValidator_ValidateUpdate"),
    ],
)
def test_services_are_refused_as_in_the_originals_tables(row: Object) -> None:
    isvc = row.get("isvc") or row["newIsvc"]
    assert refused(build_service(isvc, engine={}, model={"name": "tiny"})) == row["wantErr"]


@pytest.mark.parametrize("row", table("TestInferenceService_KEDAAutoscalerIntegration"))
def test_settings_for_keda_are_rejected_as_in_the_originals_tables(row: Object) -> None:
    config = {"kedaConfig": row["kedaConfig"]} if row["kedaConfig"] else {}
    assert refused(services.service(annotations=row["annotations"], **config)) == row["wantErr"]


@pytest.mark.parametrize(
    "row", [*table("TestResolveModelAndRuntime_Comprehensive"), *table("TestResolveModelAndRuntime_EdgeCases")]
)
def test_models_and_runtimes_are_found_as_in_the_originals_tables(row: Object) -> None:
    isvc = row.get("isvc") or {"metadata": {}, "spec": {"model": {"name": row["modelName"]}}}
    assert refused(build_service(isvc, engine={}), *objects(row)) == row["wantErr"]


@pytest.mark.parametrize(
    "row",
    [*table("TestInferenceService_RuntimeResolution"), *table("TestValidateInferenceService_ModelExistsIntegration")],
)
def test_a_runtime_is_needed_as_in_the_originals_tables(row: Object) -> None:
    """Where the tables have no engine their webhook looks no further; here there is one that says all itself."""
    assert refused(build_service(row["isvc"], engine={"runner": {"image": "a"}}), *objects(row)) == row["wantErr"]


@pytest.mark.parametrize("row", table("TestDetermineModelKind"))
def test_a_model_is_found_in_the_namespace_or_the_cluster(row: Object) -> None:
    models = [
        services.model(one["metadata"]["name"], namespace=one["metadata"].get("namespace", "") and "models")
        for one in row["existingObjs"]
    ]
    service = services.service(model={"name": row["modelName"]})
    assert refused(service, *models, services.runtime()) == row["expectError"]
