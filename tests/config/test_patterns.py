import pytest

from phalanx.config.patterns import factor_of, matches, refuse_unmatched
from phalanx.errors import UserError


def test_a_pattern_selects_a_parameter_by_its_name_or_by_a_module() -> None:
    assert matches("layer1", "layer1.0.conv.weight")
    assert matches("layer1.*", "layer1.0.conv.weight")
    assert matches("*.bias", "layer1.0.conv.bias")
    assert matches("fc.weight", "fc.weight")
    assert not matches("layer1", "layer10.0.conv.weight")


def test_the_last_pattern_that_matches_counts() -> None:
    rates = {"*": 0.1, "fc": 1.0, "fc.bias": 2.0}
    assert [factor_of(name, rates) for name in ("conv.weight", "fc.weight", "fc.bias")] == [0.1, 1.0, 2.0]
    assert factor_of("conv.weight", {}) == 1.0


def test_a_pattern_that_matches_nothing_is_refused_with_a_name_that_is_near() -> None:
    with pytest.raises(UserError, match=r"model\.freeze: 'layr1' selects no parameter") as error:
        refuse_unmatched("model.freeze", ["layer2", "layr1"], ["layer1.0.weight", "layer2.0.weight"])
    assert "layer1" in error.value.remedy
