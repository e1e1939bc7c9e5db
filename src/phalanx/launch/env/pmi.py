"""PMI-1, the line protocol of MPICH's mpiexec: its ranks exchange values before they have connections.

Each request and each reply is a line of `name=value` words on the socket PMI_FD.
"""

import os
import socket

from phalanx.config.role import Environment
from phalanx.errors import UserError
from phalanx.launch.env.variables import bad_variable

_KEY = "phalanx-master"


def broadcast(value: str, rank: int, environment: Environment = os.environ) -> str:
    """Broadcast rank 0's value. All ranks must call this."""
    descriptor = environment.get("PMI_FD", "")
    if not descriptor:
        raise UserError(
            "the ranks of this job do not know rank 0's address",
            why="mpiexec does not set PMI_FD, so the ranks cannot exchange it",
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
                ask("put", kvsname=space, key=_KEY, value=value)
            ask("barrier_in")
            received = ask("get", kvsname=space, key=_KEY)["value"]
            ask("finalize")
            return received
    except (OSError, KeyError) as error:
        raise UserError(
            "the ranks of this job could not exchange rank 0's address",
            why=f"{error} (PMI_FD={descriptor})",
            remedy="set MASTER_ADDR to the first host and MASTER_PORT to a free port",
        ) from error
