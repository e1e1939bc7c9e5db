"""A folder on another host, as scp spells it, followed by a copy here."""

import re
import shlex
from functools import partial
from pathlib import Path

from phalanx.board.mirror import Mirror
from phalanx.errors import UserError
from phalanx.launch.hosts import parse_host
from phalanx.launch.launchers.kubernetes_job import PREFIX
from phalanx.launch.multi_host import require
from phalanx.launch.remote_shell import SshShell

_REMOTE = re.compile(r"((?:[^@/\[\]]+@)?(?:\[[^\]/]+\]|[^:/\[\]]+)):(.*)", re.DOTALL)


def mirror_of(text: str, copy: Path, ssh: str, who: str) -> Mirror | None:
    """For HOST:FOLDER, USER@HOST:FOLDER or [IPv6]:FOLDER, what makes `copy` follow it; None for a folder here.

    `ssh` is the command with any options, `who` the command that asks.
    """
    found = _REMOTE.fullmatch(text)
    if found is None or Path(text).exists():
        return None
    if text.startswith(PREFIX):
        raise UserError(
            f"{who} cannot follow {text}",
            why="a job in a cluster has its run on a volume, which only its pods see",
            remedy=f"phalanx get {text}, and look at the folder that it makes; phalanx status {text} has its state",
        )
    host, folder = parse_host(found[1], who), found[2].rstrip("/") or "/" * bool(found[2]) or "."
    words = shlex.split(ssh)
    require(words[0] if words else "", "openssh-client")
    copy.mkdir(exist_ok=True)
    return Mirror(host.target, folder, copy, partial(SshShell(tuple(words)).command, host))
