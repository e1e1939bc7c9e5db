import pytest

from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.config.schema import AdversarialConfig
from phalanx.errors import UserError


def settings(*texts: str) -> AdversarialConfig:
    return resolve([parse_override(text) for text in texts]).config.adversarial


def test_it_is_off_unless_an_attack_is_named_and_numbers_may_be_fractions() -> None:
    assert not settings().on
    found = settings("adversarial.attack=pgd", "adversarial.eps=4/255", "adversarial.step= 1 / 255")
    assert (found.on, found.eps, found.step_size, found.num_steps) == (True, 4 / 255, 1 / 255, 7)
    assert settings("adversarial.attack=pgd").step_size == 2 / 255
    assert settings("adversarial.attack=fgsm").step_size == 10 / 255
    assert settings("adversarial.attack=fgsm", "adversarial.random_start=false").step_size == 8 / 255
    free = settings("adversarial.attack=free")
    assert (free.step_size, free.updates_per_batch, found.updates_per_batch) == (8 / 255, 8, 1)
    assert settings("adversarial.attack=free", "exchange.sync_bn=true").on  # it has no passes of its own
    assert settings("adversarial={attack: pgd, norm: l2, eps: 3}").eps == 3
    again = AdversarialConfig.model_validate(found.model_dump(mode="json"))
    assert again == found


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["attack=pgd", "eps=8"], r"eps 8 is more than the whole range of a pixel \(0 to 1\); try 8/255"),
        (["attack=pgd", "eps=many/255"], "neither a number nor a fraction"),
        (["attack=pgd", "eps=1/0"], "neither a number nor a fraction"),
        (["attack=pgd", "eps=-8/255"], "greater than 0"),
        (["attack=free", "steps=3"], "adversarial.steps does not go together with adversarial.attack=free"),
        (["attack=free", "loss=trades"], "adversarial.loss does not go together"),
        (["attack=free", "replays=1"], "greater than or equal to 2"),
        (["attack=pgd", "replays=4"], "adversarial.replays is for adversarial.attack=free, not pgd"),
        (["attack=fgsm", "steps=3"], "fgsm has one step"),
        (["eps=4/255"], "adversarial.eps has no effect without adversarial.attack"),
        (["attack=pgd", "loss=trades", "targeted=random"], "does not go together"),
        (["attack=pgd", "loss=trades", "mix=0.5"], "leave adversarial.mix"),
        (["attack=pgd", "targeted=all"], "adversarial.targeted cannot be 'all'"),
    ],
)
def test_what_cannot_be_is_explained(texts: list[str], expected: str) -> None:
    with pytest.raises(UserError, match=expected) as caught:
        settings(*(f"adversarial.{text}" for text in texts))
    assert caught.value.why
    assert caught.value.remedy


@pytest.mark.parametrize("other", ["data.multi_label=true", "exchange.sync_bn=true"])
def test_what_does_not_go_together_is_refused(other: str) -> None:
    with pytest.raises(UserError, match=other.partition("=")[0]):
        settings("adversarial.attack=pgd", other)


def test_the_recipe_of_imagenet_has_the_papers_attack() -> None:
    config = resolve(load_recipe("imagenet-adversarial").layers).config
    attack = config.adversarial
    assert (attack.eps, attack.step_size, attack.num_steps) == (16 / 255, 1 / 255, 30)
    assert (attack.targeted, attack.batch_norm, attack.clean_start) == ("random", "eval", 0.2)
    assert config.model.denoise.after == ["layer1", "layer2", "layer3", "layer4"]
    assert config.loss.label_smoothing == 0.1
