"""The members of tar archives: headers found many at a time are those that are found one by one."""

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.data.sources.shards.tar import Member, member_at, members
from phalanx.data.sources.shards.tar_headers import BLOCK, MIN_BYTES, find_plain_headers
from phalanx.data.sources.shards.webdataset import open_webdataset
from phalanx.data.sources.window import Damaged, Window
from phalanx.errors import UserError
from tests.data.samples import assert_helpful
from tests.data.shard_files import wanted

FORMS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def found(path: Path) -> list[Member] | str:
    with path.open("rb", buffering=0) as file:
        try:
            return list(members(Window(path, file.fileno(), path.stat().st_size)))
        except Damaged as damage:
            return f"{damage.offset}: {damage.why}"


def one_by_one(path: Path) -> list[Member]:
    data, offset, all_of_it = path.read_bytes(), 0, []
    while data[offset : offset + BLOCK] != bytes(BLOCK):
        all_of_it.append(member_at(lambda place, count, what: data[place : place + count], offset))
        offset = all_of_it[-1].end
    return all_of_it


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_many_headers_at_once_are_those_found_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = data.draw(st.sampled_from(["", "f" * 90 + "/", "g" * 60 + "/" + "h" * 70 + "/", "groß/"]))
    sizes = data.draw(st.lists(st.sampled_from([0, 1, 511, 512, 513, 2000]), min_size=10, max_size=60))
    contents = [(f"{folder}{i}.jpg", bytes([i + 1]) * size) for i, size in enumerate([*sizes, MIN_BYTES])]
    path = tmp_path_factory.mktemp("tar") / "a.tar"
    with tarfile.open(path, "w", format=data.draw(st.sampled_from(FORMS))) as tar:
        for name, content in contents:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), data.draw(st.sampled_from([1, 1.5]))  # 1.5 takes a pax record
            info.pax_headers = data.draw(st.sampled_from([{}, {}, {}, {"size": str(len(content))}, {"comment": "x=1"}]))
            tar.addfile(info, io.BytesIO(content))
    expected = one_by_one(path)
    assert [(member.name.decode(), member.size) for member in expected] == [(name, len(d)) for name, d in contents]
    assert found(path) == expected
    # A header that is written unlike others is left to the careful way; a damaged one is named by it.
    whole, at = bytearray(path.read_bytes()), data.draw(st.sampled_from(expected)).offset - BLOCK
    header = whole[at : at + BLOCK]
    header[124:136] = data.draw(st.sampled_from([header[124:136], b"%11o " % int(header[124:135], 8)]))
    header[148:156] = b" " * 8
    form = data.draw(st.sampled_from([b"%06o\0 ", b"%06o \0", b"%07o\0", b"%6o\0 ", b"%o\0\0\0\0"]))
    header[148:156] = (form % sum(header))[:8].ljust(8, b"\0")
    whole[at : at + BLOCK] = header
    path.write_bytes(whole)
    assert found(path) == expected
    whole[at + data.draw(st.integers(0, 147))] ^= 1
    path.write_bytes(whole)
    assert found(path) == f"{at}: a member's header should be here, but its checksum is wrong"


def test_the_headers_of_files_and_folders_are_plain() -> None:
    def header(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> bytes:
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, size
        return info.tobuf(tarfile.USTAR_FORMAT)

    kinds = [tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.GNUTYPE_LONGNAME]
    blocks = [header(f"{number}", kind) for number, kind in enumerate(kinds)]
    blocks += [header("6", size=1000), b"x" * 1024, header("9", size=1024), bytes(MIN_BYTES)]
    headers = find_plain_headers(b"".join(blocks))
    assert headers.after[:10] == [1, 2, 3, 0, 0, 8, 0, 0, 11, 0]
    assert headers.run(0) == [0, 1, 2]
    assert headers.names(headers.run(5)) == [b"6", b"9"]
    assert find_plain_headers(b"".join(blocks[:-1])).after == [], "a small buffer is not worth it"


@pytest.mark.parametrize(
    "record", [b"0 a=b\n", b"1 a=b\n", b"2 =\n", b"00 =b\n", b"7 a=b\n", b"9" * 30 + b" a=b\n", b" a=b\n"]
)
def test_pax_records_of_a_wrong_length_are_damage(tmp_path: Path, record: bytes) -> None:
    """A record of no length at all once was read for ever."""
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    path = tmp_path / "a.tar"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        file = tarfile.TarInfo("a.jpg")
        tar.addfile(file)
    path.write_bytes(info.tobuf(tarfile.USTAR_FORMAT) + record.ljust(BLOCK, b"\0") + out.getvalue())
    with pytest.raises(UserError) as caught:
        open_webdataset([path], wanted())
    assert_helpful(caught.value, f"damaged at offset {BLOCK}", "a pax record cannot be read")
