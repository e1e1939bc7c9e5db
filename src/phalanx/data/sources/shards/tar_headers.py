"""Plain headers of tar archives, found in a whole buffer at once: small members have a header every few blocks.

A header is plain if it is of a file, a folder or pax records, its checksum is right, and its numbers are written as all
common writers do. Any other block is left to `member_at` in tar.py, which knows the rest and says what is wrong with a
damaged one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BLOCK = 512
HALF = BLOCK // 2  # the sum of so many bytes fits into 16 bits, in which numpy adds twice as fast
NAME_BYTES = 100
SIZE = slice(124, 136)  # eleven octal digits and a NUL or blank
CHECKSUM = slice(148, 156)  # six octal digits, a NUL and a blank, in any order
KIND = 156
FILES, FOLDER, PAX = b"0\x007", b"5", b"x"  # kinds of headers
PLAIN_KIND = np.isin(np.arange(256), list(FILES + FOLDER + PAX))
ENDS_NUMBER = np.isin(np.arange(256), list(b"\0 "))
BLANK = 0x20
POWERS = 8 ** np.arange(11)[::-1]
MIN_BYTES = 1 << 15  # of a buffer; in smaller ones numpy takes longer than it saves

Bytes = npt.NDArray[np.uint8]  # (blocks, bytes of each)

NO_BLOCKS, NO_SIZES = np.empty((0, BLOCK), np.uint8), np.empty(0, np.int64)


@dataclass(frozen=True)
class PlainHeaders:
    """The plain headers of a buffer."""

    buffer: bytes
    blocks: Bytes  # of the buffer
    sizes: npt.NDArray[np.int64]  # of the member of each block that is a plain header
    after: list[int]  # the block that follows the member of each; 0 for all other blocks

    def run(self, block: int) -> list[int]:
        """The blocks of the headers that follow one another from a block on, up to the first that is not plain."""
        after, found = self.after, []
        count = len(after)
        while block < count and (following := after[block]):
            found.append(block)
            block = following
        return found

    def names(self, headers: list[int]) -> list[bytes]:
        """The names in these blocks, without the ustar prefix."""
        fields = np.ascontiguousarray(self.blocks[headers, :NAME_BYTES])
        names: list[bytes] = fields.view(f"S{NAME_BYTES}")[:, 0].tolist()
        return [name.partition(b"\0")[0] if b"\0" in name else name for name in names]


def find_plain_headers(buffer: bytes) -> PlainHeaders:
    """The plain headers among the blocks of a buffer that begins with a block."""
    if len(buffer) < MIN_BYTES:
        return PlainHeaders(buffer, NO_BLOCKS, NO_SIZES, [])
    count = len(buffer) // BLOCK
    blocks = np.frombuffer(buffer, np.uint8, count * BLOCK).reshape(count, BLOCK)
    sizes, written = _octal(blocks[:, SIZE], 11)
    numbers = np.flatnonzero(written & PLAIN_KIND[blocks[:, KIND]])  # of blocks that may be headers
    headers = blocks[numbers]
    checksums, written = _octal(headers[:, CHECKSUM], 6)
    # The bytes of the checksum itself count as blanks.
    own = headers[:, CHECKSUM].sum(axis=1, dtype=np.int64) - 8 * BLANK
    plain = numbers[written & (checksums + own == _sums(headers))]
    after = np.zeros(count, dtype=np.int64)
    after[plain] = plain + 1 - -sizes[plain] // BLOCK
    return PlainHeaders(buffer, blocks, sizes, after.tolist())


def _octal(fields: Bytes, digits: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """The number in each field, and whether it is `digits` octal digits followed only by NULs and blanks."""
    columns = np.ascontiguousarray(fields.T)  # numpy goes along rows ten times as fast as down columns
    values = columns[:digits] - np.uint8(ord("0"))  # what is less than "0" wraps around to a large number
    written = (values.max(axis=0) < 8) & ENDS_NUMBER[columns[digits:]].all(axis=0)
    return POWERS[-digits:] @ values.astype(np.int64), written


def _sums(blocks: Bytes) -> npt.NDArray[np.int64]:
    halves = np.add.reduce(blocks.reshape(-1, HALF), axis=1, dtype=np.uint16)
    sums: npt.NDArray[np.int64] = halves.reshape(-1, 2).sum(axis=1, dtype=np.int64)
    return sums
