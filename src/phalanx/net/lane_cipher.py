"""What protects the bytes of a lane in one direction: AES-GCM, or its authentication alone.

A part is sealed and opened block by block: so a block is in the processor's cache when it is sent, or has arrived.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from phalanx.net.control import Refused

KEY_BYTES = 16
TAG_BYTES = 16
BLOCK_BYTES = 256 << 10  # that are moved and sealed at once: two of them fit into a core's own cache
SLACK_BYTES = 15  # bytes that decryption may want behind what it writes

Buffer = memoryview | bytes | bytearray


class Pieces:
    """One frame whose bytes lie in several places: they are sent from there, without being copied together first."""

    __slots__ = ("_length", "buffers")

    def __init__(self, buffers: list[memoryview]) -> None:
        self.buffers, self._length = buffers, sum(map(len, buffers))

    def __len__(self) -> int:
        return self._length

    def __bytes__(self) -> bytes:
        return b"".join(self.buffers)


Frame = Buffer | Pieces


def whole(frames: Sequence[Frame]) -> list[Buffer]:
    """Frames as zmq sends them: each in one place."""
    return [bytes(frame) if isinstance(frame, Pieces) else frame for frame in frames]


def empty_bytes(size: int) -> memoryview:
    """Memory that is not set to zero first."""
    return np.empty(size, dtype=np.uint8).data


class LaneCipher:
    """Seals or opens one part of a lane after the other.

    A part is known by its number, which is the nonce: so none can be left out, repeated or moved. A key is used for one
    lane and one direction.
    """

    def __init__(self, key: bytes, *, encrypt: bool) -> None:
        self._key, self.encrypts, self._number = AES(key), encrypt, 0

    def seal(self, part: Frame) -> Iterator[memoryview]:
        """What to send, block by block. It may be the part itself, which must not change until it is sent.

        Parts are sealed one after the other, each to its end.
        """
        sealing = Cipher(self._key, GCM(self._nonce())).encryptor()
        for buffer in part.buffers if isinstance(part, Pieces) else [memoryview(part)]:
            for start in range(0, len(buffer), BLOCK_BYTES):
                block = buffer[start : start + BLOCK_BYTES]
                if self.encrypts:
                    sealed = empty_bytes(len(block) + SLACK_BYTES)
                    yield sealed[: sealing.update_into(block, sealed)]
                else:
                    sealing.authenticate_additional_data(block)
                    yield block
        sealing.finalize()
        yield memoryview(sealing.tag)

    def open(self, place: memoryview) -> "Opening":
        """The next part, which is to arrive at `place`: its bytes and `SLACK_BYTES` more."""
        return Opening(Cipher(self._key, GCM(self._nonce())), place, encrypts=self.encrypts)

    def _nonce(self) -> bytes:
        self._number += 1
        return self._number.to_bytes(12, "little")


class Opening:
    """A part that is arriving. Nobody sees its bytes before its tag has proven all of them."""

    def __init__(self, cipher: Cipher[GCM], place: memoryview, *, encrypts: bool) -> None:
        self._opening = cipher.decryptor()
        self._place, self._length = place, len(place) - SLACK_BYTES
        self._staging = empty_bytes(min(self._length, BLOCK_BYTES)) if encrypts else None
        self._tag = memoryview(bytearray(TAG_BYTES))
        self._filled = self._tag_filled = 0

    def room(self) -> list[memoryview]:
        """Where the next bytes are to be put."""
        left = self._length - self._filled
        size = min(left, BLOCK_BYTES)
        block = self._place[self._filled : self._filled + size] if self._staging is None else self._staging[:size]
        if left > size:
            return [block]
        return [block, self._tag[self._tag_filled :]] if left else [self._tag[self._tag_filled :]]

    def arrived(self, count: int) -> memoryview | None:
        """So many bytes were put there. Returns the part once all of it has come, if it was sealed as it is."""
        size = min(count, self._length - self._filled)
        if size and self._staging is None:
            self._opening.authenticate_additional_data(self._place[self._filled : self._filled + size])
        elif size and self._staging is not None:
            target = self._place[self._filled : self._filled + size + SLACK_BYTES]
            self._opening.update_into(self._staging[:size], target)
        self._filled += size
        self._tag_filled += count - size
        if self._tag_filled < TAG_BYTES:
            return None
        try:
            self._opening.finalize_with_tag(bytes(self._tag))
        except InvalidTag as error:
            raise Refused("tag") from error
        return self._place[: self._length]
