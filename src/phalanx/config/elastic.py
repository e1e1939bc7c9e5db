"""How trainers are told that their job is formed anew after a loss."""

import os
from collections.abc import Mapping

ELASTIC = "PHALANX_ELASTIC"  # 1 for trainers that are to save what they have and leave when another one is lost


def is_elastic(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process belongs to a job that is formed anew after a loss."""
    return environment.get(ELASTIC) == "1"
