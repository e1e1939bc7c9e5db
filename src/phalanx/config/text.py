"""Reads YAML: PyYAML's safe loader, with 1e-6 as a number (as in YAML 1.2)."""

import re
from typing import Any

import yaml


class _Loader(yaml.SafeLoader):
    """SafeLoader with the floats of YAML 1.2; PyYAML's own need a dot and a sign in an exponent."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+0123456789."),
)


def read_yaml(text: str) -> Any:
    """The value of a YAML text. Raises yaml.YAMLError."""
    return yaml.load(text, _Loader)
