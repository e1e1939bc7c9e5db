"""`phalanx board`: which runs to show, and what the page may ask for beyond their files."""

import io
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from phalanx.board.app import Tools
from phalanx.board.mirror import Mirror
from phalanx.board.places import Root, local_root
from phalanx.board.serve import serve
from phalanx.commands.board_samples import Samples
from phalanx.commands.remote_folder import mirror_of
from phalanx.commands.stop import stop_job
from phalanx.errors import UserError
from phalanx.runs.folder import RUNS


def show_board(console: Console, runs: Sequence[str], *, host: str, port: int, control: bool, ssh: str) -> None:
    """Serve the page until Ctrl-C."""
    mirrors: list[Mirror] = []
    tools = Tools(
        stop=_stop if control else None,
        samples=Samples(run_code=control),
        problems=lambda: [mirror.problem for mirror in mirrors if mirror.problem],
    )
    with tempfile.TemporaryDirectory(prefix="phalanx-board-", ignore_cleanup_errors=True) as copies:
        try:
            roots = _roots(runs, ssh, Path(copies), mirrors)
            serve(console, roots, host=host, port=port, tools=tools)
        finally:
            for mirror in mirrors:
                mirror.end()


def _roots(runs: Sequence[str], ssh: str, copies: Path, mirrors: list[Mirror]) -> list[Root]:
    if runs:
        return [_root(text, ssh, copies / str(number), mirrors) for number, text in enumerate(runs)]
    if not RUNS.is_dir():
        raise UserError(
            "there are no runs here",
            why=f"{Path.cwd()} has no folder {RUNS}/",
            remedy="name folders with runs: phalanx board PATH…",
        )
    return [local_root(str(RUNS))]


def _root(text: str, ssh: str, copy: Path, mirrors: list[Mirror]) -> Root:
    """A folder here or on another host."""
    mirror = mirror_of(text, copy, ssh, "phalanx board")
    if mirror is None:
        return local_root(text)
    mirrors.append(mirror)
    mirror.follow()
    return Root(copy, mirror.host, mirror.there)


def _stop(run: Path) -> str:
    said = io.StringIO()
    stop_job(Console(file=said, width=10_000), run)
    return said.getvalue().strip()
