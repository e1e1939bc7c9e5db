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
from phalanx.launch.launchers.manifests import RECIPE, RECIPE_FOLDER, job_name
from phalanx.runs.events import read_events
from tests.conftest import LEAN
from tests.custom.project import OWN, write_project
from tests.lab.hosts import Lab

Manifest = dict[str, Any]
AWKWARD = 'it\'s $(PHALANX_KEY) $$(x) $HOME `id` "q"\nü'


def manifests(*words: str) -> list[Manifest]:
    """What `phalanx launch --launcher k8s` prints."""
    said = CliRunner().invoke(app, ["launch", "--launcher", "k8s", *words], catch_exceptions=False)
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
    options += ["--volume-claim", "disk", "--gpus-per-worker", "1", "--cpus-per-worker", "4"]
    return manifests(*options, "--", "train", str(recipe), f"name={json.dumps(AWKWARD)}")


def test_kubernetes_schemas_accept_every_object(documents: list[Manifest]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="not installed: kubernetes-validate")
    for document in documents:
        kubernetes_validate.validate(document, "1.33", strict=True)
    documents[-1]["spec"]["completions"] = "four"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(documents[-1], "1.33", strict=True)


def test_what_schemas_do_not_check(documents: list[Manifest]) -> None:
    (service,), (config,) = of_kind("Service", documents), of_kind("ConfigMap", documents)
    servers, trainers = of_kind("Job", documents)
    name = service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert {document["metadata"]["namespace"] for document in documents} == {"ml"}
    for job, count in ((servers, 2), (trainers, 4)):
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", count, count)
        assert (pod["restartPolicy"], pod["subdomain"], pod["shareProcessNamespace"]) == ("Never", name, True)
        assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
        assert len(f"{job['metadata']['name']}-9999") <= 63
        mounted = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert volumes.keys() == mounted.keys()
        assert volumes["folder"]["persistentVolumeClaim"] == {"claimName": "disk"}
        assert volumes["recipe"]["configMap"]["name"] == config["metadata"]["name"]
        assert pod["containers"][0]["workingDir"] == mounted["folder"]
        (key,) = config["data"]
        assert f"{mounted['recipe']}/{key}" in pod["containers"][0]["command"]
    assert yaml.safe_load(config["data"][key])["optim"]["lr"] == 0.02
    asked = trainers["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert asked == {"requests": {"cpu": "4"}, "limits": {"nvidia.com/gpu": "1"}}


def test_words_arrive_unchanged_and_the_key_is_in_the_secret_alone(documents: list[Manifest]) -> None:
    key = of_kind("Secret", documents)[0]["stringData"]["key"]
    assert yaml.safe_dump_all(documents).count(key) == 1
    (config,) = of_kind("ConfigMap", documents)
    assert yaml.safe_load(next(iter(config["data"].values())))["name"] == AWKWARD


def test_pods_know_who_they_are(documents: list[Manifest]) -> None:
    servers, trainers = of_kind("Job", documents)
    name = of_kind("Service", documents)[0]["metadata"]["name"]
    role = role_from_env(environment(documents, trainers, 3))
    assert role is not None
    assert (role.kind, role.rank, role.world, role.launcher) == ("trainer", 3, 4, "kubernetes")
    assert role.master == f"{name}-trainer-0.{name}:29500"
    assert role.servers == tuple(f"tcp://{name}-server-{index}.{name}:29501" for index in range(2))
    assert len(role.key) == 64
    server = role_from_env(environment(documents, servers, 1))
    assert server is not None
    assert (server.kind, server.rank, server.world) == ("server", 1, 2)
    assert role_from_env({"JOB_COMPLETION_INDEX": "1"}) is None  # somebody else's indexed Job


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs --image"),
        (["--image", "x", "--namespace", "Up_per"], "not a Kubernetes name"),
        (["--image", "x", "--volume-claim", "-"], "not a Kubernetes name"),
        (["--image", "x", "--max-restarts", "2"], "has no --max-restarts"),
        (["--image", "x", "--ips", "a"], "has no -H, --ips"),
    ],
)
def test_what_cannot_be_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(
            app, ["launch", "--launcher", "k8s", "-n", "2", *words, "--", "train", "digits"], catch_exceptions=False
        )


def test_apply_gives_them_to_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["launch", "--launcher", "k8s", "-n", "2", "--image", "x", "--apply", "--", "train", "digits"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="kubectl: not found"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\nprintf "%s " "$@" > {tmp_path}/argv\n/bin/cat > {tmp_path}/stdin\n')
    (tmp_path / "kubectl").chmod(0o755)
    assert CliRunner().invoke(app, words, catch_exceptions=False).exit_code == 0
    assert (tmp_path / "argv").read_text() == "apply -f - "
    applied = [document["kind"] for document in yaml.safe_load_all((tmp_path / "stdin").read_text())]
    assert applied == ["Secret", "Service", "ConfigMap", "Job"]


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("digits-20260101-101010", "digits-20260101-101010"),
        ("8 Bit/Ünder_score", "run-8-bit-nder-score"),
        ("--", "run"),
        ("a" * 60 + "-20260101-101010", "a" * 23 + "-20260101-101010"),
    ],
)
def test_names(run: str, name: str) -> None:
    assert job_name(run) == name


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
    service = of_kind("Service", documents)[0]["metadata"]["name"]
    pods = [(job, index) for job in of_kind("Job", documents) for index in range(job["spec"]["completions"])]
    places = {f"{job['metadata']['name']}-{index}.{service}": ("h1", "h2")[index] for job, index in pods}
    started = []
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (config,) = of_kind("ConfigMap", documents)
    for name, text in config["data"].items():
        (mounted / name).write_text(text)
    for job, index in reversed(pods):
        variables = environment(documents, job, index)
        argv = [expand(word, variables) for word in job["spec"]["template"]["spec"]["containers"][0]["command"]]
        argv = [word.replace(RECIPE_FOLDER, str(mounted)) for word in argv]
        host = places[f"{job['metadata']['name']}-{index}.{service}"]
        started.append(lab.start(host, argv, cwd=tmp_path, env=variables))
    with (lab.folder / "etc_hosts").open("a") as names:  # known only when the processes run already
        names.writelines(f"{lab.address(host)} {name}\n" for name, host in places.items())
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
