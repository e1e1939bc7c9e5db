"""Searches: sweeps whose next combination is chosen by optuna, from what those before it have found."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from phalanx.config.grid import check_keys
from phalanx.config.ranges import Range, Space, space_from_data, space_to_data
from phalanx.errors import UserError
from phalanx.observe.sweep_results import Trial

if TYPE_CHECKING:
    import optuna

SEARCHES = ("optuna",)
_FAILED = 0.0  # the accuracy of a combination none of whose runs has finished: others like it are avoided


@dataclass(frozen=True)
class Search:
    """What is searched, for how long. Written to sweep.json."""

    space: Space
    trials: int
    seeds: int
    first_seed: int

    def to_data(self) -> dict[str, Any]:
        return asdict(self) | {"space": space_to_data(self.space)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "Search":
        return cls(space_from_data(data["space"]), int(data["trials"]), int(data["seeds"]), int(data["first_seed"]))


def check_search(search: str | None, trials: int | None, space: Mapping[str, Any], *, ranges: bool) -> None:
    """Refuse what cannot be a search, before anything is made."""
    if search is None:
        if trials is not None or ranges:
            raise UserError(
                "--trials is for a search" if trials is not None else "a range of numbers needs a search",
                why="a plain sweep trains every combination of given values",
                remedy="--search optuna --trials 20; or give the values: optim.lr=0.1,0.2,0.4",
            )
        return
    if search not in SEARCHES:
        raise UserError(f"there is no search {search!r}", why="unknown name", remedy=f"--search {SEARCHES[0]}")
    if trials is None or trials < 1:
        raise UserError(
            "a search needs its number of trials" if trials is None else f"--trials cannot be {trials}",
            why="it could go on for ever",
            remedy="--trials 20",
        )
    if not space:
        raise UserError(
            "there is nothing to search",
            why="no setting has a range or several values",
            remedy="phalanx sweep digits optim.lr=0.01..1:log --search optuna --trials 20",
        )
    check_keys(space)
    _import_optuna()


def ends(space: Space) -> list[dict[str, Any]]:
    """Combinations that have each end of each range, and each choice, once: a search is refused if one is wrong."""
    first = {key: _values(one)[0] for key, one in space.items()}
    return [first, *(first | {key: value} for key, one in space.items() for value in _values(one)[1:])]


def suggest(search: Search, trials: Sequence[Trial], attempt: int = 0) -> dict[str, Any]:
    """The next combination: a function of the space, the seed, the attempt, and what the trials so far have found."""
    optuna = _import_optuna()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    number = len(trials)
    # Some drawn at random come first; optuna's own ten are most of a short search.
    sampler = optuna.samplers.TPESampler(
        seed=(search.first_seed + number + 10_007 * attempt) % 2**32,
        n_startup_trials=min(10, max(3, search.trials // 3)),
    )
    study = optuna.create_study(direction="maximize", sampler=sampler)
    space = {key: _distribution(optuna, one) for key, one in search.space.items()}
    for trial in trials:
        params = {key: _inside(search.space[key], value) for key, value in trial.values.items()}
        value = _FAILED if trial.mean is None else trial.mean
        study.add_trial(optuna.trial.create_trial(params=params, distributions=space, value=value))
    asked = study.ask(space)
    return {key: _given(one, asked.params[key]) for key, one in search.space.items()}


def _distribution(library: Any, one: "Range | list[Any]") -> "optuna.distributions.BaseDistribution":
    kinds = library.distributions
    made: optuna.distributions.BaseDistribution
    if not isinstance(one, Range):
        made = kinds.CategoricalDistribution(range(len(one)))  # by place: a value may be a list
    elif one.whole:
        made = kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
    else:
        made = kinds.FloatDistribution(one.low, one.high, log=one.log)
    return made


def _values(one: "Range | list[Any]") -> list[Any]:
    if not isinstance(one, Range):
        return one
    return [int(each) if one.whole else each for each in (one.low, one.high)]


def _given(one: "Range | list[Any]", chosen: Any) -> Any:
    if not isinstance(one, Range):
        return one[chosen]
    # Six digits are enough, and can be read and typed.
    return chosen if one.whole else min(one.high, max(one.low, float(f"{chosen:.6g}")))


def _inside(one: "Range | list[Any]", value: Any) -> Any:
    return value if isinstance(one, Range) else one.index(value)


def _import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise UserError(
            "optuna is not installed", why="--search optuna needs it", remedy="pip install 'phalanx[optuna]'"
        ) from error
    return optuna
