"""YAML and JSON that would hang, fill memory, or raise something else than the format's own error."""

import pytest
import yaml

from phalanx.config.text import read_json, read_yaml

LAUGHS = "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9) if i else 'lol'}]" for i in range(12))
MERGES = "m0: &m0 {x: 1}\n" + "\n".join(f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 9)}]}}" for i in range(1, 9))


@pytest.mark.parametrize(
    "text", [LAUGHS, MERGES, "a: &a [*a]", "[" * 3000, "2001-99-99", "9" * 5000, "!!int x", "!!timestamp 1"]
)
def test_yaml_that_cannot_be_used_is_a_yaml_error(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        read_yaml(text)


def test_aliases_and_merges_still_work() -> None:
    assert read_yaml("a: &a {x: 1e-3}\nb: {<<: *a, y: 2}") == {"a": {"x": 0.001}, "b": {"x": 0.001, "y": 2}}
    assert read_yaml("") is None


def test_deep_json_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="too deeply"):
        read_json("[" * 100_000)
