"""From what the user of a sweep asks for to the requests of its runs."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from phalanx.api.folds import refuse_folds
from phalanx.api.request import make_request
from phalanx.api.start import check_early
from phalanx.api.sweep_asked import AskedSweep
from phalanx.api.sweep_train import PlannedRun
from phalanx.config.grid import check_grid, combinations, shown, value_layers
from phalanx.config.resolve import flatten
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.roles.request import Request


def plan_grid(asked: AskedSweep) -> list[PlannedRun]:
    """Every combination of a grid, with every seed. Everything is validated before the first one starts."""
    seeds = 1 if asked.seeds is None else asked.seeds
    check_grid(asked.grid, seeds)
    found: list[PlannedRun] = []
    for given in combinations(asked.grid):
        request = checked_request(asked, given)
        values = canonical(given, request.config)
        if any(values == before for before, _, _ in found):
            raise UserError(
                f"{', '.join(f'{key}={shown(value)}' for key, value in values.items())} is given twice",
                why="each combination is run once for each seed",
                remedy="leave one out; for several runs of the same: --seeds 3",
            )
        found += with_seeds(values, request, request.config.train.seed, seeds)
    return found


def checked_request(asked: AskedSweep, values: Mapping[str, Any]) -> Request:
    """The request of a combination, refused if it cannot be trained."""
    request = make_request(
        asked.recipe,
        [*asked.settings, *value_layers(values)],
        asked.flags or {},
        init_from=asked.init_from,
        command=asked.command,
    )
    refuse_folds(request.config, "phalanx sweep")
    check_early(request)
    return request


def with_seeds(values: dict[str, Any], request: Request, first: int, seeds: int) -> Iterator[PlannedRun]:
    """A run of a combination for each seed."""
    for seed in range(first, first + seeds):
        train = request.config.train.model_copy(update={"seed": seed})
        config = request.config.model_copy(update={"train": train})
        yield values, seed, replace(request, resolved=request.resolved.with_config(config))


def canonical(given: Mapping[str, Any], config: RunConfig) -> dict[str, Any]:
    """Values as the configuration has them where they are numbers (1e-3 and 0.001 are the same), else as given."""
    flat = flatten(config.model_dump(mode="json"))
    return {key: flat[key] if isinstance(flat.get(key), int | float | bool) else value for key, value in given.items()}
