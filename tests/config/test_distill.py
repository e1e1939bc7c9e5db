"""Settings of distillation that contradict each other are refused with what to do."""

import re

import pytest

from phalanx.config.resolve import parse_override, resolve
from phalanx.config.schema import DistillConfig
from phalanx.errors import UserError


def settings(*texts: str) -> DistillConfig:
    return resolve([parse_override(text) for text in texts]).config.distill


def test_defaults_follow_from_the_loss_and_weights_are_shares() -> None:
    assert not settings().on
    found = settings("distill.teachers=[a, {name: b, weight: 3}]")
    assert (found.names, found.weights, found.degrees, found.share) == (["a", "b"], [0.25, 0.75], 4.0, 0.9)
    js = settings("distill.teachers=[a]", "distill.loss=js")
    assert (js.degrees, js.share) == (1.0, 1.0)
    assert settings("distill.loss=mutual").on


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["distill.teachers=[{name: a, weight: -1}]"], "RUN, FILE or a timm name"),
        (["distill.loss=mutual", "distill.teachers=[a]"], "leave one of them out"),
        (["distill.loss=mutual", "exchange.sync_bn=true"], r"exchange\.sync_bn=true: a worker without samples"),
        (["distill.loss=mutual", "distill.servers=1", "distill.teachers=[]"], "are about distill.teachers"),
        (["distill.teachers=[a]", "distill.loss=feature"], "needs distill.layers"),
        (["distill.teachers=[a]", "distill.layers={b: b}"], "are for distill.loss=feature"),
        (["distill.teachers=[a]", "distill.cache_top_k=5"], "name its folder"),
        (["distill.unlabeled=photos"], "name distill.teachers"),
        (["distill.teachers=[a]", "adversarial.attack=pgd"], "do not go together"),
        (["distill.teachers=[a]", "data.multi_label=true"], "one label a sample"),
    ],
)
def test_contradictions_are_refused(texts: list[str], expected: str) -> None:
    with pytest.raises(UserError) as error:
        settings(*texts)
    assert re.search(expected, f"{error.value.what} {error.value.why} {error.value.remedy}")
