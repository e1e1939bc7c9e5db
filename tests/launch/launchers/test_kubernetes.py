"""Manifests: valid by Kubernetes' schemas, right in meaning, and their pods' commands really train together."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from phalanx.cli.main import app
from phalanx.errors import UserError
from phalanx.launch.env.roles import role_from_env
from phalanx.launch.launchers.kubernetes_volume import on_volume
from phalanx.launch.launchers.manifests import RECIPE, RECIPE_FOLDER, job_name
from phalanx.launch.launchers.pod import pod_names
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.custom.project import OWN, write_project
from tests.lab.hosts import Lab

Manifest = dict[str, Any]
AWKWARD = 'it\'s $(PHALANX_KEY) $$(x) $HOME `id` "q"\nü'


def manifests(*words: str) -> list[Manifest]:
    """What `phalanx launch --launcher k8s --dry-run` prints."""
    said = CliRunner().invoke(app, ["launch", "--launcher", "k8s", "--dry-run", *words], catch_exceptions=False)
    assert said.exit_code == 0, said.output
    return [document for document in yaml.safe_load_all(said.stdout) if document]


def of_kind(kind: str, documents: list[Manifest]) -> list[Manifest]:
    return [document for document in documents if document["kind"] == kind]


def expand(text: str, known: dict[str, str]) -> str:
    """Kubernetes' own reading of a command or a value: $(NAME) is a variable if it is known, $$ a plain $."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda found: "$" if found[0] == "$$" else known.get(found[1], found[0]), text)


def environment(documents: list[Manifest], job: Manifest, index: int) -> dict[str, str]:
    """The variables of a pod as Kubernetes would set them."""
    variables: dict[str, str] = {}
    for variable in job["spec"]["template"]["spec"]["containers"][0]["env"]:
        if "value" in variable:
            variables[variable["name"]] = expand(variable["value"], variables)
        else:
            wanted = variable["valueFrom"]["secretKeyRef"]
            (secret,) = (one for one in of_kind("Secret", documents) if one["metadata"]["name"] == wanted["name"])
            variables[variable["name"]] = secret["stringData"][wanted["key"]]
    return {**variables, "JOB_COMPLETION_INDEX": str(index)}


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Manifest]:
    recipe = tmp_path / "my $(HOME).yaml"
    recipe.write_text("extends: digits\noptim: {lr: 0.02}\n")
    monkeypatch.delenv("PHALANX_KEY", raising=False)
    options = ["-n", "4", "-s", "2", "--image", "registry.example/phalanx:1", "--namespace", "ml"]
    options += ["--volume-claim", "2nd.disk", "--gpus-per-worker", "1", "--cpus-per-worker", "4"]
    options += ["--memory-per-worker", "2000", "--time", "1:00:00", "--max-restarts", "2", "--queue", "vision"]
    options += ["--image-pull-secret", "registry", "--node-selector", "kind=fast", "--priority-class", "low"]
    options += ["--toleration", "gpu=yes:NoSchedule", "--toleration", "spot", "--env", "A=$(B)", "--label", "team=x"]
    return manifests(*options, "--", "train", str(recipe), f"name={json.dumps(AWKWARD)}")


def container(job: Manifest) -> Manifest:
    (found,) = job["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_kubernetes_schemas_accept_every_object(documents: list[Manifest]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="not installed: kubernetes-validate")
    for document in documents:
        kubernetes_validate.validate(document, "1.33", strict=True)
    documents[-1]["spec"]["completions"] = "four"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(documents[-1], "1.33", strict=True)


def test_what_schemas_do_not_check(documents: list[Manifest]) -> None:
    (service,), (config,), (job,) = (of_kind(kind, documents) for kind in ("Service", "ConfigMap", "Job"))
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    name = service["metadata"]["name"]
    assert {document["metadata"]["name"] for document in documents} == {name} == {pod["subdomain"]}
    assert service["spec"]["clusterIP"] == "None"
    assert {document["metadata"]["namespace"] for document in documents} == {"ml"}
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 6, 6)
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"], spec["suspend"]) == (2, 3600, True)
    assert (pod["restartPolicy"], pod["shareProcessNamespace"]) == ("Never", True)
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    assert job["metadata"]["labels"].items() >= {"team": "x", "kueue.x-k8s.io/queue-name": "vision"}.items()
    assert len(f"{name}-9999") <= 63
    mounted = {mount["name"]: mount["mountPath"] for mount in container(job)["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes.keys() == mounted.keys() == {"folder", "recipe", "shm"}
    assert volumes["folder"]["persistentVolumeClaim"] == {"claimName": "2nd.disk"}
    assert volumes["recipe"]["configMap"]["name"] == name
    assert container(job)["workingDir"] == mounted["folder"]
    (key,) = config["data"]
    assert f"{mounted['recipe']}/{key}" in container(job)["command"]
    recipe = yaml.safe_load(config["data"][key])
    assert (recipe["optim"]["lr"], recipe["exchange"]["silence_s"]) == (0.02, 15.0)
    # a limit is what a process sees; a quota may demand both
    own = {"cpu": "4", "memory": "2000M"}
    assert container(job)["resources"] == {"requests": own, "limits": {**own, "nvidia.com/gpu": "1"}}
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"kind": "fast"}, "low")
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["tolerations"] == [
        {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
        {"key": "spot", "operator": "Exists"},
    ]


def test_the_users_own_silence_is_kept() -> None:
    documents = manifests("-n", "2", "--image", "x", "--", "train", "digits", "exchange.silence_s=30")
    (config,) = of_kind("ConfigMap", documents)
    assert yaml.safe_load(config["data"][RECIPE])["exchange"]["silence_s"] == 30.0


def test_the_restricted_profile_would_admit_the_pods(documents: list[Manifest]) -> None:
    """What https://kubernetes.io/docs/concepts/security/pod-security-standards demands."""
    (job,) = of_kind("Job", documents)
    pod, own = job["spec"]["template"]["spec"], container(job)["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert own == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert not any("hostPath" in volume for volume in pod["volumes"])


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_pod_that_fails_ends_the_job_or_starts_again(restarts: int) -> None:
    """Rules are tried in order; what none of them takes counts, up to the backoff limit."""
    words = ["--max-restarts", str(restarts), "--volume-claim", "disk"]
    (job,) = of_kind("Job", manifests("-n", "2", "--image", "x", *words, "--", "train", "digits"))
    rules = job["spec"]["podFailurePolicy"]["rules"]

    def follows(code: int, *, disrupted: bool = False) -> str:
        for rule in rules:
            codes = rule.get("onExitCodes", {"operator": "In", "values": []})
            if (code in codes["values"]) == (codes["operator"] == "In") or ("onPodConditions" in rule and disrupted):
                return str(rule["action"])
        return "Count"

    wanted = {2: "FailJob", 75: "Ignore", 137: "Count"} if restarts else dict.fromkeys((2, 75, 137), "FailJob")
    assert {code: follows(code) for code in wanted} == wanted
    assert follows(143, disrupted=True) == ("Ignore" if restarts else "FailJob")
    assert job["spec"]["backoffLimit"] == restarts


def test_words_arrive_unchanged_and_the_key_is_in_the_secret_alone(documents: list[Manifest]) -> None:
    key = of_kind("Secret", documents)[0]["stringData"]["key"]
    assert yaml.safe_dump_all(documents).count(key) == 1
    (config,) = of_kind("ConfigMap", documents)
    assert yaml.safe_load(next(iter(config["data"].values())))["name"] == AWKWARD
    (job,) = of_kind("Job", documents)
    assert environment(documents, job, 0)["A"] == "$(B)"


def test_pods_know_who_they_are(documents: list[Manifest]) -> None:
    (job,) = of_kind("Job", documents)
    name = job["metadata"]["name"]
    role = role_from_env(environment(documents, job, 3))
    assert role is not None
    assert (role.kind, role.rank, role.world, role.launcher, role.elastic) == ("trainer", 3, 4, "kubernetes", True)
    assert role.master == f"{name}-0.{name}:29500"
    assert role.servers == tuple(f"tcp://{name}-{index}.{name}:29501" for index in (4, 5))
    assert len(role.key) == 64
    server = role_from_env(environment(documents, job, 5))
    assert server is not None
    assert (server.kind, server.rank, server.world) == ("server", 1, 2)
    assert role_from_env({"JOB_COMPLETION_INDEX": "1"}) is None  # somebody else's indexed Job
    names = pod_names(environment(documents, job, 0))
    assert names == [f"{name}-{index}.{name}" for index in range(6)]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --image"),
        (["--image", "x", "--namespace", "Up_per"], "not a Kubernetes name"),
        (["--image", "x", "--volume-claim", "-"], "not a Kubernetes name"),
        (["--image", "x", "--max-restarts", "2"], "needs --volume-claim"),
        (["--image", "x", "--min-workers", "1"], "has no --min-workers"),
        (["--image", "x", "--ips", "a"], "has no --ips"),
        (["--image", "x", "--nodes", "2"], "has no --nodes"),
        (["--image", "x", "--partition", "gpu"], "has no --partition"),
        (["--image", "x", "--gpus-per-node", "2"], "has no --gpus-per-node"),
        (["--image", "x", "--directive", "--x"], "has no --directive"),
        (["--image", "x", "--time", "soon"], "not a time limit"),
        (["--image", "x", "--label", "team"], "not KEY=VALUE"),
        (["--image", "x", "--toleration", "a:Never"], "not a taint"),
        (["--image", "x", "--env", "PHALANX_WORLD=1"], "cannot be set"),
        (["--image", "x", "--env", "PHALANX_KEY=secret"], "cannot be set"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(
            app, ["launch", "--launcher", "k8s", "-n", "2", *words, "--", "train", "digits"], catch_exceptions=False
        )


def test_a_format_that_does_not_exist_is_refused_before_anything_is_sent() -> None:
    words = ["launch", "--launcher", "k8s", "-n", "2", "--image", "x", "--", "train", "digits"]
    with pytest.raises(UserError, match="'imagefolder' is not a format"):
        CliRunner().invoke(app, [*words, "--data", "imagefolder:/phalanx/images"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("digits-20260101-101010", "digits-20260101-101010"),
        ("8 Bit/Ünder_score", "run-8-bit-nder-score"),
        ("--", "run"),
        ("a" * 60 + "-20260101-101010", "a" * 35 + "-20260101-101010"),
    ],
)
def test_names(run: str, name: str) -> None:
    assert job_name(run) == name


def test_a_run_is_copied_to_where_it_is_on_the_volume_whatever_pods_call_it() -> None:
    assert on_volume(Path("/phalanx/runs/a")) == on_volume(Path("runs/a")) == Path("runs/a")


def test_the_users_code_is_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write_project(tmp_path))
    documents = manifests("-n", "2", "--image", "x", "--", "train", "digits", *OWN)
    (config,) = of_kind("ConfigMap", documents)
    for job in of_kind("Job", documents):
        (volume,) = (one for one in job["spec"]["template"]["spec"]["volumes"] if one["name"] == "recipe")
        seen = {item["path"]: config["data"][item["key"]] for item in volume["configMap"]["items"]}
        assert seen["code/nets.py"] == (tmp_path / "nets.py").read_text()
        assert "code/nets.py:TinyNet" in seen[RECIPE]


@pytest.mark.lab
def test_the_pods_train_together(lab: Lab, tmp_path: Path) -> None:
    """Every pod of the manifests as a process on one of two hosts, in the order that suits them least."""
    settings = ["digits", "model.name=wrn10_1", "train.length=4st", *LEAN, "train.log_every=2"]
    words = ["-n", "2", "-s", "1", "--image", "x", "--python", sys.executable]
    documents = manifests(*words, "--", "train", *settings, "--out", str(tmp_path / "k8s-run"))
    (job,), (config,) = of_kind("Job", documents), of_kind("ConfigMap", documents)
    hosts = dict(zip(pod_names(environment(documents, job, 0)), ("h1", "h2", "h1"), strict=True))
    started = []
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for name, text in config["data"].items():
        (mounted / name).write_text(text)
    for index, host in reversed(list(enumerate(hosts.values()))):
        variables = environment(documents, job, index)
        argv = [expand(word, variables) for word in container(job)["command"]]
        argv = [word.replace(RECIPE_FOLDER, str(mounted)) for word in argv]
        started.append(lab.start(host, argv, cwd=tmp_path, env=variables))
    with (lab.folder / "etc_hosts").open("a") as names:  # known only when the processes run already
        names.writelines(f"{lab.address(host)} {name}\n" for name, host in hosts.items())
    output = ""
    for process in started:
        said, _ = process.communicate(timeout=180)
        assert process.returncode == 0, said
        output += said
    assert "worker: trainer-1 of 2 on h2" in output  # kubectl logs shows each pod's own
    assert "worker: trainer-0 of 2 on h1" in (tmp_path / "k8s-run/log.txt").read_text()
    steps = [record for record in read_events(tmp_path / "k8s-run") if record["kind"] == "step"]
    assert len(steps[-1]["ranks"]) == 2
    assert sorted(os.listdir(tmp_path)) == ["k8s-run", "mounted"]  # noqa: PTH208 - names are wanted
