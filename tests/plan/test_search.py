"""The recommended arrangement is one that none of its neighbours beats; what binds is found by simulation."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.plan.plan import make_plan
from phalanx.plan.predict import predict
from phalanx.plan.search import EQUAL, Search, most_servers, neighbours
from phalanx.plan.setup import Arrangement, Setup, asked_arrangement
from phalanx.plan.simulate import simulate
from tests.plan.jobs import setup

CLUSTERS = st.fixed_dictionaries(
    {
        "device": st.sampled_from(["p100", "v100", "cpu-avx2"]),
        "hosts": st.integers(1, 4),
        "per_host": st.sampled_from([1, 2]),
        "link": st.sampled_from(["100Mbit", "1Gbit", "10Gbit", "ib-edr"]),
        "server_hosts": st.integers(0, 2),
    }
)
RECIPES = st.sampled_from([("imagenet-resnet50", ()), ("cifar10-resnet20", ()), ("digits", ("train.batch_size=8",))])
ASKED = st.sampled_from([(), ("exchange.method=pserver",), ("exchange.method=pserver", "exchange.mode=async")])


@settings(max_examples=8, deadline=None)
@given(CLUSTERS, RECIPES, ASKED)
def test_no_neighbour_of_the_recommendation_is_faster(
    cluster: dict[str, object], recipe: tuple[str, tuple[str, ...]], asked: tuple[str, ...]
) -> None:
    name, overrides = recipe
    one = setup(name, (*overrides, *asked), **cluster)
    workers = one.cluster.hosts * one.cluster.per_host
    best = Search(one).best(asked_arrangement(one, workers))
    seconds = simulate(one.job(best)).step_s
    for other in neighbours(best, most_servers(one, workers)):
        assert simulate(one.job(other)).step_s >= (1 - EQUAL) * seconds - 1e-12, f"{other} beats {best}"


def test_asynchronous_recipes_stay_asynchronous() -> None:
    one = setup(overrides=("exchange.method=pserver", "exchange.mode=async"), hosts=2, per_host=2)
    assert Search(one).best(asked_arrangement(one, 4)).mode == "async"


def test_more_bandwidth_is_never_slower() -> None:
    speeds = [
        predict(setup(link=link), Arrangement(32, method, 4), ranges=False).images_per_s.expected
        for method in ("collective", "pserver")
        for link in ("1Gbit", "2Gbit", "5Gbit", "10Gbit")
    ]
    assert speeds[:4] == sorted(speeds[:4])
    assert speeds[4:] == sorted(speeds[4:])


def binding(one: Setup, workers: int) -> str:
    return make_plan(one, [workers]).constraint.kind


def test_what_binds_is_named() -> None:
    assert binding(setup(), 1) == "compute"
    assert binding(setup(link="1Gbit"), 32) in ("links", "exchange")
    assert binding(setup(cores=1), 8) == "input"
    assert binding(setup(spread=0.4, link="400Gbit"), 32) == "waiting"
    asynchronous = ("exchange.method=pserver", "exchange.mode=async")  # else collective would be recommended
    assert binding(setup(overrides=asynchronous, link="400Gbit", server_hosts=1), 8) == "server"


def test_remedies_are_true() -> None:
    """What the sentence promises of fp16 is what a plan with fp16 has."""
    one = setup(link="5Gbit")
    plan = make_plan(one, [32])
    said = "--compress fp16 (which changes the result) would give "
    assert said in plan.constraint.sentence
    promised = float(plan.constraint.sentence.split(said)[1].split("×")[0])
    halved = predict(one, replace(plan.best.arranged, compress="fp16"), ranges=False)
    assert plan.best.step_s.expected / halved.step_s.expected == pytest.approx(promised, abs=0.01)


def test_what_binds_says_from_how_many_workers_on() -> None:
    one = setup(link="5Gbit", hosts=8, per_host=1)
    found = make_plan(one, [8]).constraint
    assert (found.kind, found.since) == ("links", 2)
    assert "(from 2 workers on)" in found.sentence
    later = setup(cores=12, hosts=1)  # 4,800 images/s
    found = make_plan(later.but(later.cluster.but(per_host=32, inside="nvlink5")), [1, 32]).constraint
    assert found.kind == "input"
    assert found.since is not None
    assert found.since == pytest.approx(4800 / 352, abs=3)


def test_ranges_hold_what_is_expected_and_narrow_with_measurements() -> None:
    wide = predict(setup(), Arrangement(32)).step_s
    narrow = predict(setup(speed={"images_per_s": 350, "batch": 32}, spread=0.01), Arrangement(32)).step_s
    assert wide.low < wide.expected < wide.high
    found = predict(setup(link="5Gbit"), Arrangement(32))
    for each in (found.efficiency, found.speed_up, found.parts["exchange"], found.parts["waiting"]):
        assert each.low < each.expected < each.high
    assert (narrow.high - narrow.low) / narrow.expected < (wide.high - wide.low) / wide.expected


def test_advice_on_batches_that_the_recipe_was_not_shown_for() -> None:
    many = make_plan(setup(hosts=64, overrides=("train.batch_size=64",)), [512])
    assert any("8,192" in note for note in many.notes)
    unscaled = make_plan(setup("cifar10-resnet20", hosts=1), [8])
    assert any("optim.lr=0.1 is for 128 images" in note for note in unscaled.notes)
    assert not make_plan(setup(), [32]).notes
