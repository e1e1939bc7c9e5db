"""torch's store, where the processes of a job exchange addresses and settings before the first step.

torch cannot authenticate its stores. So a job on one machine has a file in a folder that only its user can open. Across
hosts the store listens at the job's own address instead of all of them, and the job's key proves every text that we
put there: whoever reaches the port can read, delete and overwrite texts, and so end the job, but not change what it
does. Counters have no proof; processes only wait by them. torch's own entries (addresses of gloo and NCCL) have none.
"""

import hmac
import socket
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from phalanx.errors import UserError
from phalanx.net.interfaces import own_address_of
from phalanx.net.waiting import Store, await_listener

FILE = "file://"  # begins the address of a store that is a file
_SEALED = b"sealed:"
_MAC_BYTES = 16


def open_file_store(address: str, timeout_s: float) -> Any:
    """torch's store in a file. All processes of a job on one machine open the same one."""
    from torch.distributed import FileStore  # type: ignore[attr-defined]

    store = FileStore(address.removeprefix(FILE))
    store.set_timeout(timedelta(seconds=timeout_s))
    return store


def serve_tcp_store(host: str, port: int, who: str, timeout_s: float, *, one_machine: bool) -> Any:
    """torch's store, in this process. It listens at the host's own address where that is known here."""
    listener = _listen(host, port, who, one_machine=one_machine)
    if listener is None:
        return _tcp_store(host, port, timeout_s, is_master=True)
    port = int(listener.getsockname()[1])
    return _tcp_store(host, port, timeout_s, is_master=True, master_listen_fd=listener.detach())


def join_tcp_store(host: str, port: int, me: str, other: str, timeout_s: float) -> Any:
    """torch's store in another process, as soon as that listens. `me` and `other` name both in messages."""
    await_listener(me, other, host, port, timeout_s)
    return _tcp_store(host, port, timeout_s)


def _tcp_store(host: str, port: int, timeout_s: float, **options: Any) -> Any:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    return TCPStore(host, port, timeout=timedelta(seconds=timeout_s), wait_for_workers=False, **options)


def _listen(host: str, port: int, who: str, *, one_machine: bool) -> socket.socket | None:
    """A socket at the host's own address; None where torch has to listen at all of them."""
    address = own_address_of(host, one_machine=one_machine)
    if address is None:
        return None
    listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a job that starts again may have the same port
    try:
        listener.bind((address, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise UserError(
            f"{who} cannot listen at {address}:{port}, where the job's processes meet",
            why=error.strerror or str(error),
            remedy="end the program that uses that port, or choose another one (MASTER_PORT)",
        ) from error
    return listener


class SealedStore:
    """A store whose texts carry a proof of the job's key. Without a key they are plain.

    `group` tells groups of one job apart, so that a text of an earlier one is not taken for this one's.
    """

    def __init__(self, store: Any, key: str, group: str) -> None:
        self.plain: Store = store  # for torch itself
        self._group = group
        self._key = blake2b(b"phalanx store " + key.encode(), digest_size=32).digest() if key else b""

    def set(self, key: str, value: str) -> None:
        proof = _SEALED.decode() + self._proof(key, value.encode()) + ":" if self._key else ""
        self.plain.set(key, proof + value)

    def get(self, key: str) -> bytes:
        value = bytes(self.plain.get(key))
        if not self._key:
            if value.startswith(_SEALED):
                raise _refused(key, "its process has a key, and this one has none")
            return value
        proof, _, text = value.removeprefix(_SEALED).partition(b":")
        if not value.startswith(_SEALED) or not hmac.compare_digest(proof, self._proof(key, text).encode()):
            raise _refused(key, "the job's key does not prove it")
        return text

    def add(self, key: str, amount: int) -> int:
        return self.plain.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        return self.plain.check(keys)

    def _proof(self, key: str, text: bytes) -> str:
        place = f"{len(self._group)} {self._group} {len(key)} {key} ".encode()
        return blake2b(place + text, key=self._key, digest_size=_MAC_BYTES).hexdigest()


def _refused(key: str, why: str) -> UserError:
    return UserError(
        f"the text {key} at the job's store is not of this job",
        why=f"{why}: another program has written it, or a process of the job has another key",
        remedy="give all processes the same PHALANX_KEY_FILE (phalanx's launchers do); if they have it, "
        "somebody else reaches the store: `phalanx doctor --job` shows who can",
    )
