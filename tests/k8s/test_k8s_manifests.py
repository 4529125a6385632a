"""The manifests under k8s/, as a cluster gets them: valid, and in step with each other, the README and the programs."""

import copy
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.k8s.k8s_rendering import RenderingError, apply_json_patch, find, render
from tests.k8s.k8s_schemas import find_mistakes, load_validators, pod_specs

REPOSITORY = Path(__file__).resolve().parents[2]
K8S = REPOSITORY / "k8s"
FOLDERS = sorted(path.parent.relative_to(K8S).as_posix() for path in K8S.glob("*/*/kustomization.yaml"))
PIPELINES = ["base/pipeline", "overlays/pipeline-50tb"]
TRAINERS = ["base/trainer", "overlays/trainer-8x8"]
# Made by hand, from the README's command: never in a file.
SECRET = "shardmill-s3"


@pytest.fixture(scope="module")
def validators() -> dict[tuple[str, str], Any]:
    folder = Path(os.environ.get("SHARDMILL_K8S_SCHEMAS", REPOSITORY.parent / "shared" / "k8s-schemas"))
    if not folder.is_dir():
        pytest.skip(
            f"no schemas of RayJob and JobSet in {folder}; set SHARDMILL_K8S_SCHEMAS to the folder that holds them"
        )
    return load_validators(folder)


@pytest.fixture(scope="module")
def readme() -> str:
    return (K8S / "README.md").read_text()


def get_job(folder: str) -> dict[str, Any]:
    kind, name = ("RayJob", "shardmill-build") if folder in PIPELINES else ("JobSet", "shardmill-train")
    return find(render(K8S / folder), kind, name)


def get_trainer(folder: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The Job's spec, its pod's spec, its container."""
    (replicated,) = get_job(folder)["spec"]["replicatedJobs"]
    job = replicated["template"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    return job, pod, container


def parse_torchrun(container: dict[str, Any]) -> Any:
    from torch.distributed.run import get_args_parser

    assert container["command"][0] == "torchrun"
    return get_args_parser().parse_args(container["command"][1:])


def get_config(folder: str, name: str, file_name: str) -> str:
    text = find(render(K8S / folder), "ConfigMap", name)["data"][file_name]
    assert isinstance(text, str)
    return text


def test_every_folder_is_looked_at() -> None:
    assert FOLDERS == [
        "base/pipeline",
        "base/setup",
        "base/trainer",
        "overlays/pipeline-50tb",
        "overlays/setup",
        "overlays/trainer-8x8",
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_published_schemas_accept_every_object(folder: str, validators: dict) -> None:
    mistakes = [mistake for item in render(K8S / folder) for mistake in find_mistakes(item, validators)]
    assert mistakes == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_kubectl_renders_what_these_tests_look_at(folder: str) -> None:
    tools = {"kubectl": ["kubectl", "kustomize"], "kustomize": ["kustomize", "build"]}
    command = next((words for tool, words in tools.items() if shutil.which(tool)), None)
    if command is None:
        pytest.skip("neither kubectl nor kustomize is on the PATH")
    result = subprocess.run([*command, str(K8S / folder)], capture_output=True, text=True, check=True)
    rendered = {(item["kind"], item["metadata"]["name"]): item for item in yaml.safe_load_all(result.stdout)}
    ours = {(item["kind"], item["metadata"]["name"]): item for item in render(K8S / folder)}
    assert rendered == ours


@pytest.mark.parametrize(
    ("folder", "path", "value", "complaint"),
    [
        ("base/pipeline", "/spec/shutdownAfterJobFinish", True, "shutdownAfterJobFinish"),
        ("base/pipeline", "/spec/rayClusterSpec/headGroupSpec/template/spec/containers/0/workDir", "/", "workDir"),
        ("base/pipeline", "/spec/backoffLimit", "three", "'three' is not of type 'integer'"),
        ("base/trainer", "/spec/failurePolicy/maxRestart", 3, "maxRestart"),
        ("base/trainer", "/spec/failurePolicy/restartStrategy", "Recreated", "'Recreated' is not one of"),
        ("base/trainer", "/apiVersion", "jobset.x-k8s.io/v1", "no version jobset.x-k8s.io/v1"),
    ],
)
def test_a_wrong_field_in_a_custom_resource_is_found(
    folder: str, path: str, value: Any, complaint: str, validators: dict
) -> None:
    job = get_job(folder)
    apply_json_patch(job, [{"op": "add", "path": path, "value": value}])
    (mistake,) = find_mistakes(job, validators)
    assert complaint in mistake


@pytest.mark.parametrize(
    ("path", "value"), [("/spec/storageClass", "shared"), ("/spec/resources/requests", ["600Gi"]), ("/kin", "x")]
)
def test_a_wrong_field_in_a_core_object_is_found(path: str, value: Any, validators: dict) -> None:
    claim = find(render(K8S / "base/setup"), "PersistentVolumeClaim", "shardmill-runs")
    apply_json_patch(claim, [{"op": "add", "path": path, "value": value}])
    assert len(find_mistakes(claim, validators)) == 1


def test_a_patch_written_for_another_command_is_refused() -> None:
    job = get_job("base/trainer")
    moved = copy.deepcopy(job)
    moved["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["command"].insert(
        1, "-v"
    )
    kustomization = yaml.safe_load((K8S / "overlays/trainer-8x8/kustomization.yaml").read_text())
    operations = yaml.safe_load(kustomization["patches"][0]["patch"])
    apply_json_patch(job, operations)
    with pytest.raises(RenderingError, match="expected '--nnodes'"):
        apply_json_patch(moved, operations)


@pytest.mark.parametrize("folder", PIPELINES + TRAINERS)
def test_every_name_a_pod_refers_to_exists(folder: str) -> None:
    there = {(item["kind"], item["metadata"]["name"]) for item in render(K8S / folder) + render(K8S / "base/setup")}
    for pod in pod_specs(get_job(folder)):
        assert ("ServiceAccount", pod["serviceAccountName"]) in there
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
            for source in container["envFrom"]:
                if "secretRef" in source:
                    assert source["secretRef"]["name"] == SECRET
                else:
                    assert ("ConfigMap", source["configMapRef"]["name"]) in there


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_credential_is_in_a_file(folder: str) -> None:
    objects = render(K8S / folder)
    assert [item["kind"] for item in objects if item["kind"] == "Secret"] == []
    assert re.findall(r"AKIA[0-9A-Z]{12,}|SECRET_ACCESS_KEY|SESSION_TOKEN", yaml.safe_dump_all(objects)) == []


@pytest.mark.parametrize("folder", PIPELINES + TRAINERS)
def test_pods_run_without_root_and_as_the_user_of_the_image(folder: str) -> None:
    users = set(re.findall(r"^USER (\d+):\d+$", (K8S / "Dockerfile").read_text(), re.MULTILINE))
    for pod in pod_specs(get_job(folder)):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert {str(pod["securityContext"]["runAsUser"])} == users
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]


@pytest.mark.parametrize(("folders", "target"), [(PIPELINES, "pipeline"), (TRAINERS, "trainer")])
def test_every_image_is_the_one_the_readme_builds(folders: list[str], target: str, readme: str) -> None:
    dockerfile = (K8S / "Dockerfile").read_text()
    for folder in folders:
        (image,) = {container["image"] for pod in pod_specs(get_job(folder)) for container in pod["containers"]}
        command = f"docker build -f k8s/Dockerfile --target {target} -t {image} ."
        assert command in readme
        assert f"\nFROM base AS {target}\n" in dockerfile
    (folder_in_image,) = re.findall(r"^WORKDIR (\S+)$", dockerfile, re.MULTILINE)
    assert {c["workingDir"] for f in folders for pod in pod_specs(get_job(f)) for c in pod["containers"]} == {
        folder_in_image
    }


@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if folder.startswith("overlays/")])
def test_the_readme_applies_every_overlay(folder: str, readme: str) -> None:
    assert f"kubectl apply -k k8s/{folder}" in readme
    assert f"kubectl apply -k k8s/{folder}" in (K8S / folder / "kustomization.yaml").read_text()


@pytest.mark.parametrize("folder", PIPELINES)
def test_the_ray_job_runs_the_readmes_command_and_takes_its_cluster_down(folder: str, readme: str) -> None:
    spec = get_job(folder)["spec"]
    assert spec["entrypoint"] == "python pipeline/build.py /config/corpus.yaml"
    assert f"`{spec['entrypoint']}`" in readme
    assert (REPOSITORY / "pipeline" / "build.py").is_file()
    assert spec["shutdownAfterJobFinishes"] is True
    head = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    assert {"name": "config", "mountPath": "/config", "readOnly": True} in head["containers"][0]["volumeMounts"]
    assert list(yaml.safe_load(get_config(folder, "shardmill-corpus", "corpus.yaml"))) != []
    (worker,) = spec["rayClusterSpec"]["workerGroupSpecs"]
    assert worker["replicas"] == worker["minReplicas"] == worker["maxReplicas"]


@pytest.mark.parametrize("folder", PIPELINES)
def test_ray_is_the_version_that_the_image_installs(folder: str) -> None:
    (pinned,) = re.findall(r"^ray==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE)
    assert get_job(folder)["spec"]["rayClusterSpec"]["rayVersion"] == pinned


@pytest.mark.parametrize("folder", TRAINERS)
def test_torchrun_knows_every_option_and_runs_the_readmes_command(folder: str, readme: str) -> None:
    job, pod, container = get_trainer(folder)
    arguments = parse_torchrun(container)
    assert arguments.training_script == "trainer/train.py"
    assert (REPOSITORY / arguments.training_script).is_file()
    assert arguments.training_script_args[0] == "--manifest"
    assert arguments.training_script_args[2:] == ["--config", "/config/train.yaml"]
    assert "`torchrun ... trainer/train.py --manifest s3://... --config /config/train.yaml`" in readme
    assert job["backoffLimit"] == 0
    assert pod["restartPolicy"] == "Never"


@pytest.mark.parametrize(("folder", "num_nodes"), [("base/trainer", 2), ("overlays/trainer-8x8", 8)])
def test_pods_torchrun_and_mesh_count_the_same_nodes_and_gpus(folder: str, num_nodes: int) -> None:
    job, _, container = get_trainer(folder)
    arguments = parse_torchrun(container)
    mesh = yaml.safe_load(get_config(folder, "shardmill-train", "train.yaml"))["mesh"]
    assert (job["completions"], job["parallelism"], int(arguments.nnodes)) == (num_nodes, num_nodes, num_nodes)
    assert container["resources"]["limits"]["nvidia.com/gpu"] == arguments.nproc_per_node == "8"
    assert mesh == {"replicate": num_nodes, "shard": 8}


@pytest.mark.parametrize("folder", TRAINERS)
def test_the_rendezvous_is_the_first_pods_published_name_and_port(folder: str) -> None:
    spec = get_job(folder)["spec"]
    _, _, container = get_trainer(folder)
    host, _, port = parse_torchrun(container).rdzv_endpoint.partition(":")
    assert host == f"shardmill-train-{spec['replicatedJobs'][0]['name']}-0-0.{spec['network']['subdomain']}"
    assert spec["network"]["enableDNSHostnames"] is True
    assert [p["containerPort"] for p in container["ports"] if p["name"] == "rendezvous"] == [int(port)]


@pytest.mark.parametrize("folder", TRAINERS)
def test_torchrun_gives_up_before_the_kernel_does(folder: str) -> None:
    _, pod, container = get_trainer(folder)
    assert parse_torchrun(container).shutdown_timeout == 570
    assert pod["terminationGracePeriodSeconds"] == 600


@pytest.mark.parametrize("folder", TRAINERS)
def test_what_the_trainer_writes_lies_on_volumes_large_enough(folder: str) -> None:
    _, pod, container = get_trainer(folder)
    config = yaml.safe_load(get_config(folder, "shardmill-train", "train.yaml"))
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert config["output"].startswith("/runs/")
    assert "persistentVolumeClaim" in volumes[mounts["/runs"]]
    cache = volumes[mounts[config["loader"]["cache_dir"]]]["emptyDir"]
    assert cache == {"sizeLimit": "500Gi"}
    assert config["loader"]["cache_bytes"] * 8 < 500 * 2**30
    assert volumes[mounts["/dev/shm"]]["emptyDir"]["medium"] == "Memory"


@pytest.mark.parametrize("folder", PIPELINES)
def test_the_build_accepts_the_config_in_the_config_map(folder: str, tmp_path: Path) -> None:
    from pipeline.config import load_config

    path = tmp_path / "corpus.yaml"
    path.write_text(get_config(folder, "shardmill-corpus", "corpus.yaml"))
    assert load_config(path).ray.address == "auto"


@pytest.mark.parametrize("folder", TRAINERS)
def test_the_trainer_accepts_the_config_in_the_config_map(folder: str, tmp_path: Path) -> None:
    from trainer.config import load_config

    path = tmp_path / "train.yaml"
    path.write_text(get_config(folder, "shardmill-train", "train.yaml"))
    assert load_config(path, []).precision == "bf16"
