"""Native code is compiled once, by anyone who comes first, and never required."""

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.grad import conv2d_weight

from phalanx.native.build import Library, find_library, library_key, load_library, native_status
from phalanx.native.tensors import address

ENCODE = """
import torch
from phalanx.exchange.compress.two_bit import TwoBitCodec
from phalanx.native.build import native_status
print(TwoBitCodec(0.5).encode(torch.tensor([1.0, -1.0])).tolist())
print(native_status())
"""


def start(**environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ENCODE], env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    )


def find_afresh(name: str) -> Library:
    return find_library.__wrapped__(name)


def test_processes_that_start_together_share_one_library(tmp_path: Path) -> None:
    outputs = [process.communicate()[0] for process in [start(XDG_CACHE_HOME=str(tmp_path)) for _ in range(2)]]
    assert outputs[0] == outputs[1]
    if "PyTorch" in outputs[0]:
        pytest.skip(outputs[0])
    left = sorted((tmp_path / "phalanx" / "native").iterdir())
    assert [path.suffix for path in left] == [".so"]
    assert str(left[0]) in outputs[0]


def test_without_a_compiler_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    library = find_afresh("two_bit")
    assert library.handle is None
    assert "none of the compilers cc, gcc, clang is installed" in library.reason
    assert "two_bit: PyTorch, which is slower" in native_status()


def test_a_compiler_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "false")
    assert "false refused two_bit.c" in find_afresh("two_bit").reason
    monkeypatch.setenv("CC", "/nowhere/cc")
    assert "/nowhere/cc does not exist" in find_afresh("two_bit").reason


def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    library = find_afresh("two_bit")
    assert library.handle is None
    assert "XDG_CACHE_HOME" in library.reason


def test_clang_compiles_it_too_and_shares_pytorchs_threads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if shutil.which("clang") is None or sys.platform != "linux":
        pytest.skip("clang is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "clang")
    library = find_afresh("winograd")
    assert library.handle is not None, library.reason
    x, weight = torch.randn(5, 16, 30, 30).to(memory_format=torch.channels_last), torch.randn(24, 16, 3, 3)
    y, gradient = torch.empty(5, 24, 30, 30).to(memory_format=torch.channels_last), torch.empty(24, 3, 3, 16)
    sizes = [ctypes.c_int64(each) for each in (5, 30, 30, 16, 24, 1)]
    strides = (ctypes.c_int64 * 4)(*(weight.stride(each) for each in (1, 0, 2, 3)))
    threads = 3  # more than most test machines use: each has its share
    assert library.handle.winograd_convolve(address(x), address(weight), strides, 0, address(y), *sizes, threads) == 0
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, weight, padding=1), rtol=1e-3, atol=1e-2)
    assert library.handle.winograd_weight(address(x), address(y), address(gradient), *sizes, threads) == 0
    expected = conv2d_weight(x, weight.shape, y, padding=1)
    error = (gradient.permute(0, 3, 1, 2) - expected).abs().max()
    assert error < 1e-3 * expected.abs().max()
    loaded = Path("/proc/self/maps").read_text(encoding="utf-8")
    assert "libgomp" in loaded
    assert not any(other in loaded for other in ("libomp.so", "libiomp5"))


def test_half_a_file_is_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    if find_afresh("top_k").handle is None:
        pytest.skip(find_afresh("top_k").reason)
    (made,) = (tmp_path / "phalanx" / "native").glob("*.so")
    made.unlink()  # not written over: this process has it mapped
    made.write_bytes(b"\x7fELF")
    assert find_afresh("top_k").handle is not None


def test_an_edited_header_makes_another_library(tmp_path: Path) -> None:
    source, header = tmp_path / "some.c", tmp_path / "some.h"
    source.write_text('#include "some.h"')
    header.write_text("int f(void);")
    before = library_key(source, ["cc"])
    header.write_text("int g(void);")
    assert library_key(source, ["cc"]) != before
    assert library_key(source, ["cc", "-g"]) != library_key(source, ["cc"])


def test_what_does_the_work_instead_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_NATIVE", "0")
    assert find_library.__wrapped__("resample", "Pillow") == Library(None, "Pillow (PHALANX_NATIVE=0)")


def test_the_switch_turns_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHALANX_NATIVE", "0")
    assert find_afresh("two_bit") == Library(None, "PyTorch (PHALANX_NATIVE=0)")


def test_a_source_that_does_not_exist_is_our_mistake() -> None:
    with pytest.raises(FileNotFoundError, match=r"no nothing\.c"):
        load_library("nothing")


def test_a_library_that_others_can_change_is_built_again_or_not_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = find_afresh("two_bit")
    if first.handle is None:
        pytest.skip(first.reason)
    (library,) = (tmp_path / "phalanx" / "native").glob("*.so")
    good = library.read_bytes()
    library.write_bytes(b"somebody else's code")
    library.chmod(0o777)
    assert find_afresh("two_bit").handle is not None
    assert library.read_bytes()[:4] == good[:4]
    assert library.stat().st_mode & 0o777 == 0o755
    tmp_path.chmod(0o777)
    assert find_afresh("two_bit").reason.endswith(
        "can be changed by other users; set XDG_CACHE_HOME to a folder of your own)"
    )
    tmp_path.chmod(0o1777)  # as /tmp: nobody else can rename what is in it
    assert find_afresh("two_bit").handle is not None
