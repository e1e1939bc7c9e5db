"""What several test folders share: small real runs, trained once a session."""

import io
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from rich.console import Console

from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.config.role import Role
from phalanx.machine.openmp import let_idle_threads_sleep
from phalanx.native.features import hold_libraries_to_level
from phalanx.roles.request import Request
from tests import warm
from tests.order import longest_first
from tests.slow import mark_slow

# A shell starts what it puts into the background with Ctrl-C ignored; some tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Settings of a run that shares the cores and is not looked at. Numbers are compared in fp32, whatever the CPU, unless
# a test says that it is about another precision.
LEAN = ("machine.threads=1", "train.curves=false", "machine.precision=fp32")

# Before any test imports torch: tests share the cores, and may be about another CPU (PHALANX_CPU).
let_idle_threads_sleep()
hold_libraries_to_level()
warm.install()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow(items)
    longest_first(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """One thread in this process: tensors are tiny, tests share the cores, and a second thread mostly waits."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where every tool is meant to be there (.ci/run), a test that misses one fails instead of being skipped."""
    report = yield
    if report.skipped and "not installed" in str(report.longrepr) and os.environ.get("PHALANX_TOOLS") == "required":
        report.outcome = "failed"
    return report


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache where nothing was measured yet. What takes long to make, and is the same for all, is everybody's."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    for shared in ("phalanx/native", "matplotlib"):
        (base / shared).mkdir(parents=True, exist_ok=True)
        own = tmp_path / "cache" / shared
        own.parent.mkdir(parents=True, exist_ok=True)
        own.symlink_to(base / shared)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def train_digits(out: Path, *settings: str) -> Path:
    """A run on the built-in digits, in this process; the run's folder."""
    from phalanx.roles.run import run

    resolved = resolve([*load_recipe("digits").layers, *map(parse_override, settings)])
    assert run(Request(resolved, "test", out=out), Role(), Console(file=io.StringIO())).exit_code == 0
    return out


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of a small model with averaged weights. Only to be read: copy it to write into it."""
    return train_digits(
        tmp_path_factory.mktemp("digits") / "run",
        "model.name=wrn10_1",
        "train.length=2ep",
        "optim.ema=0.9",
        *LEAN,
    )


@pytest.fixture(scope="session")
def timm_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step of one of timm's models, one that is built for an image size."""
    return train_digits(
        tmp_path_factory.mktemp("timm") / "run",
        "model.name=test_vit",
        "data.image_size=32",
        "train.length=1st",
        *LEAN,
    )
