"""Reads YAML and JSON: what is not right, or would never end, raises the format's own error and nothing else."""

import json
import re
from typing import Any

import yaml

_MOST_NODES = 100_000  # values of a YAML text after its aliases are followed: a few lines can ask for billions
_MOST_DEPTH = 100  # levels of nesting: everything that walks over values calls itself


class _Loader(yaml.SafeLoader):
    """SafeLoader with the floats of YAML 1.2 (1e-6); PyYAML's own need a dot and a sign in an exponent."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self._depth > _MOST_DEPTH:
            raise yaml.YAMLError("it is nested too deeply")
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


def read_yaml(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError."""
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _refuse_bomb(node)
        return loader.construct_document(node)
    except RecursionError as error:
        raise yaml.YAMLError("it is nested too deeply") from error
    except (ValueError, TypeError, LookupError, OverflowError, AttributeError) as error:
        # PyYAML turns text into dates and numbers without a look at what they say.
        raise yaml.YAMLError(f"a value cannot be read: {str(error)[:200]}") from error
    finally:
        loader.dispose()


def _refuse_bomb(top: yaml.Node) -> None:
    """Refuse aliases that stand for far more than is written, or that contain themselves."""
    sizes: dict[int, int] = {}
    inside: set[int] = set()

    def size_of(node: yaml.Node) -> int:
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in inside:
            raise yaml.YAMLError("an alias contains itself")
        if len(inside) > _MOST_DEPTH:
            raise yaml.YAMLError("it is nested too deeply")
        inside.add(id(node))
        size = 1 + sum(map(size_of, _children(node)))
        inside.discard(id(node))
        if size > _MOST_NODES:
            raise yaml.YAMLError(f"it has more than {_MOST_NODES:,} values")
        sizes[id(node)] = size
        return size

    size_of(top)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [each for pair in node.value for each in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def read_json(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError, also for what is nested too deeply or is not UTF-8."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
