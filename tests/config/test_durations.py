import pytest
from pydantic import TypeAdapter, ValidationError

from phalanx.config.durations import Duration

RUN = {"steps_per_epoch": 10, "samples_per_step": 64}


@pytest.mark.parametrize(
    ("text", "steps"), [("90ep", 900), ("0.5ep", 5), ("5000st", 5000), ("6400ex", 100), (" 2 ep ", 20), ("1e2st", 100)]
)
def test_resolves_to_steps(text: str, steps: int) -> None:
    assert Duration.parse(text).steps(**RUN) == steps


def test_a_share_needs_the_length_of_the_run() -> None:
    assert Duration.parse("10%").steps(**RUN, total_steps=900) == 90
    with pytest.raises(ValueError, match="share of the run"):
        Duration.parse("10%").steps(**RUN)


@pytest.mark.parametrize("text", ["90", "ep", "-1ep", "9 0ep", "5x", "nanep", "1e999st", ""])
def test_refuses_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"duration|too large"):
        Duration.parse(text)


def test_pydantic_reads_text_only_and_writes_it_back() -> None:
    adapter = TypeAdapter(Duration)
    assert adapter.dump_python(adapter.validate_python("1500000ex")) == "1500000ex"
    with pytest.raises(ValidationError, match="no unit"):
        adapter.validate_python(90)
