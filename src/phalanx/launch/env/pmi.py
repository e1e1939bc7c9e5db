"""PMI-1, the line protocol by which MPICH's mpiexec lets its ranks tell one another something before they have met.

Each request is a line of `name=value` words on the socket PMI_FD, and so is each answer.
"""

import os
import socket

from phalanx.config.role import Environment
from phalanx.errors import UserError
from phalanx.launch.env.variables import bad_variable

_KEY = "phalanx-master"


def share(mine: str, rank: int, environment: Environment = os.environ) -> str:
    """What rank 0 gives as `mine`, on every rank. All ranks must call this."""
    descriptor = environment.get("PMI_FD", "")
    if not descriptor:
        raise UserError(
            "the ranks of this job cannot know where to meet",
            why="mpiexec gives them no way to tell one another (PMI_FD is not set)",
            remedy="set MASTER_ADDR to the first host and MASTER_PORT to a free port: mpiexec -genv MASTER_ADDR HOST …",
        )
    if not descriptor.isdecimal():
        raise bad_variable("PMI_FD", descriptor, "is not a file descriptor", "mpiexec")
    try:
        with socket.socket(fileno=os.dup(int(descriptor))) as link, link.makefile("rw", newline="\n") as lines:

            def ask(cmd: str, **words: str) -> dict[str, str]:
                lines.write(" ".join([f"cmd={cmd}", *(f"{name}={value}" for name, value in words.items())]) + "\n")
                lines.flush()
                answer = dict(word.partition("=")[::2] for word in lines.readline().split())
                if not answer or answer.get("rc", "0") != "0":
                    raise ConnectionError(f"mpiexec answered {answer} to {cmd}")
                return answer

            ask("init", pmi_version="1", pmi_subversion="1")
            space = ask("get_my_kvsname")["kvsname"]
            if rank == 0:
                ask("put", kvsname=space, key=_KEY, value=mine)
            ask("barrier_in")
            told = ask("get", kvsname=space, key=_KEY)["value"]
            ask("finalize")
            return told
    except (OSError, KeyError) as error:
        raise UserError(
            "the ranks of this job could not tell one another where to meet",
            why=f"{error} (PMI_FD={descriptor})",
            remedy="set MASTER_ADDR to the first host and MASTER_PORT to a free port",
        ) from error
