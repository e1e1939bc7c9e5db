"""What `--compress` accepts, and how it refuses the rest."""

import pytest

from phalanx.errors import UserError
from phalanx.exchange.compress.cast import PlainCodec
from phalanx.exchange.compress.codecs import make_codec
from phalanx.exchange.compress.spec import DEFAULT_RMS_FACTOR, CompressionSpec, parse_compression


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("none", CompressionSpec()),
        ("FP16", CompressionSpec("fp16")),
        ("bf16", CompressionSpec("bf16")),
        ("2bit", CompressionSpec("2bit", rms_factor=DEFAULT_RMS_FACTOR)),
        ("2bit:0.5", CompressionSpec("2bit", threshold=0.5)),
        ("2bit:0.123456789", CompressionSpec("2bit", threshold=0.123456789)),
        ("2bit:rms:1.5", CompressionSpec("2bit", rms_factor=1.5)),
        ("1bit", CompressionSpec("1bit")),
        ("topk:0.01", CompressionSpec("topk", ratio=0.01)),
        ("topk:1", CompressionSpec("topk", ratio=1.0)),
        ("powersgd:4", CompressionSpec("powersgd", rank=4)),
    ],
)
def test_what_is_accepted(text: str, spec: CompressionSpec) -> None:
    assert parse_compression(text) == spec
    assert parse_compression(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2bits", "did you mean 2bit"),
        ("fp32", "did you mean fp16"),
        ("", "one of"),
        ("2bit:0", "above 0"),
        ("2bit:-1", "above 0"),
        ("2bit:rms:0", "above 0"),
        ("2bit:", "no number"),
        ("2bit:nan", "not a number"),
        ("2bit:rms", "not a number"),
        ("2bit:inf", "not a number"),
        ("2bit:1e-50", "between"),
        ("2bit:1e50", "between"),
        ("topk", "topk:0.01"),
        ("topk:0", "above 0"),
        ("topk:1.01", "at most 1"),
        ("topk:many", "'many' is not a number"),
        ("powersgd", "powersgd:4"),
        ("powersgd:0", "from 1 on"),
        ("powersgd:1.5", "whole number"),
        ("1bit:3", "takes no number"),
        ("none:", "takes no number"),
    ],
)
def test_what_is_refused(text: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_compression(text)
    assert hint in str(caught.value)
    assert caught.value.remedy


def test_each_has_a_codec_but_powersgd() -> None:
    assert isinstance(make_codec(CompressionSpec()), PlainCodec)
    for text in ("fp16", "bf16", "2bit", "1bit", "topk:0.1"):
        assert make_codec(parse_compression(text)).wire_bytes(1000) < 4000
    with pytest.raises(UserError, match="collective only"):
        make_codec(parse_compression("powersgd:2"))
