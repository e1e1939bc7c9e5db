"""The public names: light to import, in step with the command line, and documented by examples that run."""

import doctest
import inspect
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

import phalanx
from phalanx.api.flags import TrainFlags
from phalanx.cli.main import app
from phalanx.config.flags import FLAGS

HEAVY = ("torch", "numpy", "pydantic", "typer", "rich", "yaml", "asyncio", "matplotlib")
METHODS = ("history", "figure", "model", "predict", "evaluate", "attack", "resume")


def parameters(function: Callable[..., Any]) -> set[str]:
    return {one.name for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD}


def command(name: str) -> set[str]:
    """The parameters of a command of the command line."""
    return {one.name or "" for one in typer.main.get_group(app).commands[name].params} - {"help"}


def test_import_brings_in_nothing_heavy() -> None:
    code = f"import sys, phalanx; print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_each_public_name_is_there() -> None:
    assert set(phalanx.__all__) == set(dir(phalanx)) - {"__version__"}
    for name in phalanx.__all__:
        assert callable(getattr(phalanx, name))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        phalanx.trian  # noqa: B018


def test_packages_do_not_hide_functions_of_the_same_name() -> None:
    import phalanx.launch.job
    from phalanx.runs import folder

    assert folder.RUNS
    assert inspect.isfunction(phalanx.launch)
    assert inspect.isfunction(phalanx.runs)


def test_train_has_the_flags_of_the_command_line() -> None:
    own = {"recipe", "settings", "out", "resume", "at", "init_from", "accept_code", "progress"}
    assert parameters(phalanx.train) == set(FLAGS) | own
    # The recipe is the first of the command's settings; --verbose is PHALANX_VERBOSE=1.
    assert command("train") - {"verbose"} == set(FLAGS) | (own - {"recipe", "progress"})
    assert set(TrainFlags.__annotations__) == set(FLAGS)
    assert parameters(phalanx.Run.resume) == {"self", "at", "accept_code", "settings", "progress"}


def test_launch_has_the_options_of_the_command_line() -> None:
    of_train = (set(FLAGS) | parameters(phalanx.train)) & (parameters(phalanx.launch) | set(FLAGS))
    of_kubernetes = {"image", "namespace", "volume_claim", "run_as", "image_pull_secret", "node_selector", "toleration"}
    of_kubernetes |= {"env", "label", "queue", "priority_class", "patch", "gang"}
    of_commands = command("launch") - {"words", "dry_run"} - of_kubernetes
    assert (parameters(phalanx.launch) | set(FLAGS)) - {"hosts"} == (of_commands - {"ips"}) | of_train


def test_plot_has_the_options_of_the_command_line() -> None:
    assert parameters(phalanx.plot) == command("plot")


def test_train_documents_each_argument() -> None:
    for function in (phalanx.train, phalanx.launch):
        documented = function.__doc__ or ""
        missing = [name for name in parameters(function) if f"\n        {name}: " not in documented]
        assert not missing


def examples() -> list[Any]:
    names: list[tuple[str, Any]] = [("phalanx", phalanx)]
    names += [(name, getattr(phalanx, name)) for name in phalanx.__all__]
    names += [(f"Run.{name}", getattr(phalanx.Run, name)) for name in METHODS]
    return [pytest.param(thing, id=name) for name, thing in names]


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize("thing", examples())
def test_an_example_runs(thing: Any, digits_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(digits_run, tmp_path / "runs" / "digits")
    test = doctest.DocTestParser().get_doctest(inspect.getdoc(thing) or "", {"phalanx": phalanx}, str(thing), None, 0)
    assert test.examples
    said: list[str] = []
    doctest.DocTestRunner().run(test, out=said.append)
    assert not said, "".join(said)
