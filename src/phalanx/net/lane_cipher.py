"""What protects the bytes of a lane in one direction: AES-GCM, or its authentication alone."""

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from phalanx.net.control import Refused

KEY_BYTES = 16
TAG_BYTES = 16

Buffer = memoryview | bytes | bytearray


def empty_bytes(size: int) -> memoryview:
    """Memory that is not set to zero first."""
    return np.empty(size, dtype=np.uint8).data


class LaneCipher:
    """Seals or opens one part of a lane after the other.

    A part is known by its number, which is the nonce: so none can be left out, repeated or moved. A key is used for one
    lane and one direction.
    """

    def __init__(self, key: bytes, *, encrypt: bool) -> None:
        self._gcm, self.encrypts, self._number = AESGCM(key), encrypt, 0

    def seal(self, part: Buffer, *, copy: bool = True) -> list[Buffer]:
        """The buffers to send. Without `copy` they may be the part itself, which must not change until it is sent."""
        if self.encrypts:
            sealed = empty_bytes(len(part) + TAG_BYTES)
            self._gcm.encrypt_into(self._nonce(), part, None, sealed)
            return [sealed]
        tag = self._gcm.encrypt(self._nonce(), b"", part)
        return [bytes(part) if copy else part, tag]

    def open(self, sealed: memoryview) -> memoryview:
        """The part that was sealed. Refuses what is not the next part of this lane, to the bit."""
        end = len(sealed) - TAG_BYTES
        try:
            if self.encrypts:
                part = empty_bytes(end)
                self._gcm.decrypt_into(self._nonce(), sealed, None, part)
                return part
            self._gcm.decrypt(self._nonce(), sealed[end:], sealed[:end])
            return sealed[:end]
        except InvalidTag as error:
            raise Refused("tag") from error

    def _nonce(self) -> bytes:
        self._number += 1
        return self._number.to_bytes(12, "little")
