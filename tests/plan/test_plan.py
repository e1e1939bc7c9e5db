"""Plans as users ask for them: cluster files, goals, what-if, measurements, errors, Python and the command line."""

import inspect
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

import phalanx
from phalanx.api.plan_setup import CLUSTER_OPTIONS, RECIPE_FLAGS, Asked, make_setup
from phalanx.cli.main import app
from phalanx.cli.plan import parse_counts
from phalanx.errors import UserError
from phalanx.plan.check import check
from phalanx.plan.cluster import make_cluster
from phalanx.plan.goals import host_counts, offers, parse_goal
from phalanx.plan.measured import Measurement, Row, read_measurement, read_run
from phalanx.plan.memory import memory_bounds, worker_memory
from phalanx.plan.plan import make_plan
from phalanx.plan.setup import Arrangement
from phalanx.plan.units import parse_rate, parse_size, parse_time, show_time
from phalanx.plan.what_if import what_if
from tests.plan.jobs import setup

V100 = {"device": "v100", "hosts": 4, "per_host": 8, "link": "25Gbit"}


def command(*words: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "phalanx", "plan", *words]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd, timeout=120, check=False)


def test_units() -> None:
    assert parse_rate("25Gbit", "link") == parse_rate("25 Gbit/s", "link") == parse_rate("25Gbps", "link") == 3.125e9
    assert parse_rate("12.5GB/s", "link") == 12.5e9
    assert (parse_size("16GB", ""), parse_size("1GiB", "")) == (16e9, 1 << 30)
    assert parse_time("6h", "") == 21600.0
    assert parse_time("30us", "") == pytest.approx(3e-5)
    assert (show_time(18540), show_time(0.0042), show_time(4980)) == ("5 h 09 min", "4.2 ms", "83 min")


@pytest.mark.parametrize(
    ("cluster", "words", "said"),
    [
        ({"device": "v1000"}, (), "the device 'v1000' is not known"),
        ({"link": "25"}, (), "has no unit"),
        ({"link": "25Gb it"}, (), "is no rate"),
        ({"link": "carrier-pigeon"}, (), "neither a rate nor one of"),
        ({"link": None}, (), "no link between them"),
        ({"hosts": 0}, (), "hosts cannot be 0"),
        ({"hots": 4}, (), "hots is not known"),
        ({"device": None}, (), "names no device"),
        ({"data_servers": 2}, (), "nobody knows how many cores they have"),
        ({"data_servers": -1}, (), "data_servers cannot be -1"),
        ({}, ("train.batch_size=4096",), "does not fit into a worker's 16.0 GB"),
        ({}, ("train.global_batch_size=32",), "32 workers cannot share a global batch of 32"),
        ({}, ("machine.precision=bf16",), "machine.precision=bf16 has no rate on this device"),
        ({}, ("model.name=resnet5000",), "resnet5000 is not known"),
    ],
)
def test_bad_input_has_its_message(cluster: dict[str, Any], words: tuple[str, ...], said: str) -> None:
    with pytest.raises(UserError) as caught:
        make_plan(*make_setup(Asked("imagenet-resnet50", words, cluster={**V100, **cluster})))
    assert said in str(caught.value)
    assert caught.value.remedy


def test_the_batch_that_is_said_to_fit_does() -> None:
    with pytest.raises(UserError) as caught:
        make_plan(setup(overrides=("train.batch_size=4096",)), [1])
    fits = caught.value.remedy.split("--batch-size ")[1].split(" ")[0]
    make_plan(setup(overrides=(f"train.batch_size={fits}",)), [1])
    with pytest.raises(UserError):
        make_plan(setup(overrides=(f"train.batch_size={int(fits) + 4}",)), [1])


def test_memory_names_its_parts() -> None:
    parts = worker_memory(setup(), Arrangement(32))
    assert parts["parameters"] == parts["gradients"] == parts["optimizer"] == 4 * 25_557_032
    assert "optimizer" not in worker_memory(setup(), Arrangement(32, "pserver"))  # the servers have it
    adam = worker_memory(setup(overrides=("optim.name=adamw",)), Arrangement(32))
    assert adam["optimizer"] == 2 * parts["optimizer"]
    low, high = memory_bounds(parts)
    assert low < sum(parts.values()) < high


def test_hours_and_cost_to_the_end_of_the_recipe() -> None:
    best = make_plan(setup(price=10.0), [32]).best
    assert best.total_steps == 90 * -(-1_281_167 // 1024)
    assert best.hours is not None
    assert best.cost is not None
    assert best.hours.expected == pytest.approx(best.total_steps * best.step_s.expected / 3600)
    assert best.cost.expected == pytest.approx(best.hours.expected * 40)
    unknown = make_plan(setup(overrides=("data.source=photos",)), [32])
    assert unknown.best.hours is None
    assert "--samples N" in repr(unknown)


def test_goals_choose_the_cheapest_that_will_do() -> None:
    one = setup(price=10.0, hosts=8)
    found = offers(one, [parse_goal("time<6h")])
    assert found.chosen.hours is not None
    assert found.chosen.hours.expected < 6
    assert found.chosen in found.frontier
    cheaper = [
        each
        for each in found.all
        if each.cost and found.chosen.cost and each.cost.expected < found.chosen.cost.expected
    ]
    assert all(each.hours and each.hours.expected > 6 for each in cheaper)
    with pytest.raises(UserError, match="no number of hosts up to 8 meets") as caught:
        offers(one, [parse_goal("time<6h"), parse_goal("cost<1")])
    assert "cost" in caught.value.why
    with pytest.raises(UserError, match="needs a price"):
        offers(setup(), [parse_goal("cost<400")])
    for wrong in ("time", "speed<3", "time<6", "cost<x"):
        with pytest.raises(UserError):
            parse_goal(wrong)
    assert host_counts(10) == [1, 2, 3, 4, 6, 8, 10]


def test_what_if_changes_one_thing() -> None:
    one = setup(link="5Gbit")
    now = what_if(one, 32, "link=5Gbit").images_per_s.expected
    assert what_if(one, 32, "link=50Gbit").images_per_s.expected > 1.2 * now
    assert what_if(one, 32, "workers=64").arranged.workers == 64
    assert what_if(one, 32, "compress=fp16").images_per_s.expected > now
    assert what_if(one, 32, "device=a100").images_per_s.expected > now
    assert what_if(one, 32, "hosts=2").arranged.workers == 16
    for wrong in ("wokers=3", "workers=x", "link", "link=fast", "hosts=0"):
        with pytest.raises(UserError):
            what_if(one, 32, wrong)


def test_lines_of_the_users_own() -> None:
    device = {"flops": {"fp32": 1e13}, "bandwidth": "500GB/s", "memory": "8GB"}
    cluster = make_cluster({"device": "mine", "devices": {"mine": device}}, "the cluster")
    assert cluster.table.device("mine").memory == 8e9
    plan = make_plan(setup(device="mine", devices={"mine": device}), [8])
    assert "assumed: compute speed ± 50 %" in repr(plan)


def test_python_is_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("{device: v100, hosts: 4, per_host: 8, link: 25Gbit, price: 12}\n")
    (tmp_path / "my.yaml").write_text("extends: imagenet-resnet50\ntrain: {batch_size: 16}\n")
    words = ["my.yaml", "--cluster", "cluster.yaml", "--workers", "1,32"]
    done = command(*words, "--json", "plan.json", "--plot", "plan.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "plan.json").read_text())
    plan = phalanx.plan(tmp_path / "my.yaml", tmp_path / "cluster.yaml", workers=[1, 32])
    assert told["rows"] == plan.to_dict()["rows"]
    assert [row["workers"] for row in told["rows"]] == [1, 32]
    assert "run: phalanx launch -n 32 -H hosts.txt -- train my.yaml --update-method collective" in done.stdout
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    assert len(plan.table().splitlines()) == 3
    assert [axes.get_title() for axes in plan.figure().axes][:2] == [
        "images/s, and % of linear",
        "ms of a step, and its range",
    ]


def test_python_has_the_options_of_the_command_line() -> None:
    arguments = set(inspect.signature(phalanx.plan).parameters)
    options = {one.name or "" for one in typer.main.get_group(app).commands["plan"].params} - {"help"}
    own = {"cluster", "settings", "workers", "samples", "measure", "out"}
    assert arguments == {*CLUSTER_OPTIONS, *RECIPE_FLAGS, *own, "recipe", "goals", "measured"}
    # --goal and --from may be repeated; --what-if, --check, --plot, --json and --out are methods of a plan.
    methods = {"what_if", "check", "plot", "json_file", "out"}
    assert options == {*CLUSTER_OPTIONS, *RECIPE_FLAGS, *own, "goal", "from_", *methods}
    documented = phalanx.plan.__doc__ or ""
    assert not [name for name in arguments if f"\n        {name}: " not in documented]
    assert all(callable(getattr(phalanx.Plan, name)) for name in ("what_if", "check", "figure", "to_dict"))


def test_goals_from_python_and_from_the_command_line(tmp_path: Path) -> None:
    cluster = {**V100, "hosts": 8, "price": 24.5}
    rent = phalanx.plan("imagenet-resnet50", cluster, goals=["time<6h", "cost<400"])
    assert rent.offers is not None
    assert rent.offers.chosen.arranged.workers == rent.best.arranged.workers == rent.rows[-1].arranged.workers
    assert len(rent.offers.table().splitlines()) == 1 + len(rent.offers.all)
    assert "rent this" in repr(rent)
    assert rent.offers.figure().axes[0].get_xlabel() == "hours to the end"
    words = [f"--{name.replace('_', '-')}={value}" for name, value in cluster.items()]
    goals = ["--goal", "time<6h", "--goal", "cost<400"]
    done = command("imagenet-resnet50", *words, *goals, "--json", "rent.json", "--plot", "rent.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "rent.json").read_text())
    assert told["offers"] == rent.to_dict()["offers"]
    assert [one["workers"] for one in told["offers"] if one["chosen"]] == [rent.best.arranged.workers]
    assert (tmp_path / "rent.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="exclude each other"):
        phalanx.plan("imagenet-resnet50", cluster, goals="time<6h", workers=8)


def test_what_if_and_check_from_python(tmp_path: Path) -> None:
    plan = phalanx.plan("imagenet-resnet50", V100, link="5Gbit", batch_size=16)
    changed = plan.what_if("link=50Gbit", "workers=16")
    assert [name for name, _ in changed.rows] == ["as it is", "link=50Gbit", "workers=16"]
    assert changed.rows[1][1].images_per_s.expected > plan.asked.images_per_s.expected
    assert len(changed.table().splitlines()) == 4
    assert len(changed.figure().axes) == 2
    file = tmp_path / "scaling.json"
    rows: list[dict[str, Any]] = [{"workers": 32, "batch_size": 16, "images_per_s": 3000, "alone_images_per_s": 340}]
    rows.append({**rows[0], "workers": 8, "images_per_s": 2500, "method": "pserver"})
    file.write_text(json.dumps({"measured": {"model": "resnet50", "rows": rows}}))
    found = plan.check(file)
    assert [each.row.workers for each in found.rows] == [32, 8]
    assert found.median <= found.largest
    assert all(each.predicted.low < each.predicted.expected < each.predicted.high for each in found.rows)
    assert found.table().splitlines()[1].startswith("     32  collective")
    assert found.figure().axes[0].get_xlabel() == "measured images/s"
    # Without a recipe, it is the model that was measured.
    assert phalanx.plan(measured=file, device="v100").setup.config.model.name == "resnet50"
    done = command("--check", str(file), "--goal", "time<6h", "--device", "v100", cwd=tmp_path)
    assert done.returncode == 2
    assert "--check and --goal exclude each other" in done.stderr


def test_data_servers_make_batches_and_cost_money() -> None:
    few = {**V100, "cores": 4, "price": 10.0}
    bound = phalanx.plan("imagenet-resnet50", few, workers=32)
    assert bound.constraint.kind == "input"
    helped = phalanx.plan("imagenet-resnet50", few, workers=32, data_servers=16)
    assert helped.best.images_per_s.expected > 1.5 * bound.best.images_per_s.expected
    assert (bound.best.hosts, helped.best.hosts) == (4, 20)
    assert helped.best.hours is not None
    assert helped.best.cost is not None
    assert helped.best.cost.expected == pytest.approx(200 * helped.best.hours.expected)
    assert "--data-service data1:7300,data2:7300," in helped.command
    assert "phalanx serve-data imagenet-resnet50 --bind" in repr(helped)


def test_commands_are_complete() -> None:
    one = phalanx.plan("imagenet-resnet50", V100, workers=8, settings={"optim": {"lr": 0.2}}, epochs=3, data="imagenet")
    train = "train imagenet-resnet50 optim.lr=0.2 --data imagenet --epochs 3"
    assert one.command == f"phalanx {train} --update-method collective --workers 8"
    assert f"phalanx launch -n 8 -- {train} --update-method collective" in repr(one)
    apart = phalanx.plan(
        "imagenet-resnet50", V100, workers=32, update_method="pserver", mode="async", servers=2, server_hosts=2
    )
    assert apart.command.startswith(f"phalanx launch -n 32 -s {apart.best.arranged.servers} -H hosts.txt --servers-on ")
    assert apart.command.endswith("-- train imagenet-resnet50 --update-method pserver --mode async")


def test_a_plan_does_not_wait_for_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from phalanx.cli.main import app; "
        "app(['plan', 'imagenet-resnet50', '--device', 'v100', '--hosts', '2', '--link', '10Gbit',"
        " '--update-method', 'pserver'], standalone_mode=False); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.endswith("False\n"), done.stdout + done.stderr


def test_wrong_words_end_with_code_2(tmp_path: Path) -> None:
    done = command("imagenet-resnet50", "--device", "v100", "--hosts", "2", "--link", "25", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: link '25' is no rate\n")
    with pytest.raises(UserError):
        parse_counts("1,x")


def test_a_run_is_a_measurement(digits_run: Path, tmp_path: Path) -> None:
    found = read_run(digits_run)
    assert found.found.images_per_s is not None
    assert found.found.rows[0].workers == 1
    # Its own speed is predicted, and the run is planned with other workers.
    done = command(str(digits_run), "--link", "1Gbit", "--what-if", "workers=4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"by measured: the run {digits_run}" in done.stdout
    assert "workers=4" in done.stdout
    checked = command("--check", str(digits_run), cwd=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "median error" in checked.stdout


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_measured_cpu_has_the_precision_of_the_recipe(precision: str, tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    file.write_text(json.dumps({"measured": {"model": "resnet50", "batch_size": 32, "images_per_s": 4.0}}))
    plan = phalanx.plan("imagenet-resnet50", measured=file, precision=precision)
    assert plan.setup.precision == precision
    assert plan.best.images_per_s.expected == pytest.approx(4.0, rel=0.01)


def test_a_check_uses_the_speed_of_one_worker() -> None:
    one = setup(hosts=1, per_host=1, device="cpu-avx2", link="1Gbit", spread=0.0)
    row = Row(workers=1, batch_size=32, images_per_s=50.0, alone_images_per_s=50.0)
    (found,) = check(one, Measurement(rows=(row,)))
    assert found.error == pytest.approx(0.0, abs=1e-6)
    with pytest.raises(UserError, match="nothing to compare with"):
        check(one, Measurement())


def test_files_of_bench_feed_a_plan(tmp_path: Path) -> None:
    file = tmp_path / "train.json"
    file.write_text(json.dumps({"measured": {"model": "resnet50", "batch_size": 32, "images_per_s": 400.0}}))
    assert read_measurement(file).images_per_s == 400.0
    measured = phalanx.plan("imagenet-resnet50", V100, measured=file)
    assert measured.rows[0].images_per_s.expected == pytest.approx(400.0, rel=0.01)
    with pytest.raises(UserError, match="measured resnet50, and the recipe has cifar_resnet20"):
        phalanx.plan("cifar10-resnet20", V100, measured=file)
    file.write_text(json.dumps({"measured": {"input_images_per_s": 500.0}}))
    assert phalanx.plan("imagenet-resnet50", V100, measured=file).constraint.kind == "input"
    file.write_text(json.dumps({"measured": {"codecs": {"2bit": [0.01, 0.01], "2bit:1": [1, 1]}}}))
    packed = {"exchange.compress": "2bit", "exchange.method": "pserver"}
    slow = phalanx.plan("imagenet-resnet50", V100, measured=file, settings=packed)
    assert (
        slow.asked.step_s.expected > 2 * phalanx.plan("imagenet-resnet50", V100, settings=packed).asked.step_s.expected
    )
    file.write_text("{}")
    with pytest.raises(UserError, match="has no measurement"):
        read_measurement(file)


def test_one_worker_is_timed_here(tmp_path: Path) -> None:
    plan = phalanx.plan("digits", measure=True, workers=[1, 2], link="1Gbit", settings={"train.batch_size": 8})
    assert plan.setup.times is not None
    assert "measured on this machine" in repr(plan)
    assert plan.rows[0].step_s.expected == pytest.approx(
        plan.setup.times.compute_s + plan.setup.times.update_s, rel=0.2
    )
