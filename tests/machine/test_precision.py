"""Where both precisions are possible, the faster one is taken; near ties keep what the flags say."""

import pytest

from phalanx.machine.job_settings import Decision
from phalanx.machine.precision import PrecisionTimes, faster_precision

FLAGS = Decision("bf16", "AVX512-BF16 present")


def times(fp32: float, bf16: float, host: str = "h1") -> PrecisionTimes:
    return PrecisionTimes(host, 8, {"fp32": fp32, "bf16": bf16})


@pytest.mark.parametrize(
    ("fp32", "bf16", "expected"),
    [
        (2.4, 1.9, "bf16 (a step of 8: 1.9 s, fp32 2.4 s; measured on this machine)"),
        (0.101, 0.2, "fp32 (a step of 8: 101 ms, bf16 200 ms; measured on this machine)"),
        (
            1.9,
            2.0,
            "bf16 (a step of 8: 2.0 s, fp32 1.9 s; no 10 % between them; the flags say AVX512-BF16 present; "
            "measured on this machine)",
        ),
    ],
)
def test_the_faster_one_is_taken(fp32: float, bf16: float, expected: str) -> None:
    assert str(faster_precision(FLAGS, [times(fp32, bf16)])) == expected


def test_all_wait_for_the_slowest_host() -> None:
    one, other = times(3.0, 1.0), times(2.0, 5.0, "h2")
    decision = faster_precision(FLAGS, [one, PrecisionTimes("h1"), other])  # the second is another worker of h1
    assert str(decision) == "fp32 (a step of 8: 3.0 s, bf16 5.0 s; the slowest of 2 hosts)"
    assert faster_precision(FLAGS, [one]).value == "bf16"
    arrived = [PrecisionTimes.from_json(each.to_json()) for each in (one, other)]
    assert faster_precision(FLAGS, arrived) == decision


def test_what_is_said_holds_for_all_workers() -> None:
    of_four = Decision("bf16", "all 4 workers have AMX")
    decision = faster_precision(of_four, [times(1.9, 2.0), PrecisionTimes("h2", why_not="a step could not be timed")])
    near = "no 10 % between them; the flags say all 4 workers have AMX"
    assert str(decision) == f"bf16 (a step of 8: 2.0 s, fp32 1.9 s; {near}; measured on h1)"


def test_what_is_not_timed_goes_by_the_flags() -> None:
    why = "1.2 GFLOP a micro-batch are not worth timing"
    decision = faster_precision(FLAGS, [PrecisionTimes("h1", why_not=why), PrecisionTimes("h1")])
    assert str(decision) == f"bf16 (AVX512-BF16 present; {why})"
