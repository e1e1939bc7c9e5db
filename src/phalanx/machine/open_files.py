"""The limit of open files, and so of connections: the usual one, 1024, is less than a large job or a stranger takes."""

import contextlib
import resource

_WANTED = 65536


def allow_many_files() -> None:
    """Raise this process's limit as far as it may, for what it starts, too.

    A launcher needs three pipes for each host. And who connects to a socket of ours holds a descriptor until the
    handshake has failed: at the usual limit a thousand silent connections keep a process from opening a file.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Only a wish: macOS says that there is no upper limit, and refuses more than kern.maxfilesperproc.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
