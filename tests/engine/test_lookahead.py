"""A batch is announced a step before it is used, and no batch after the last step is made."""

from collections.abc import Generator

from phalanx.data.base import Batch
from phalanx.engine.lookahead import announced


def batches(made: list[int]) -> Generator[Batch]:
    number = 0
    while True:
        made.append(number)
        yield Batch(0, number, [], 1, last=False, wait_s=1.0)
        number += 1


def test_each_batch_is_announced_before_the_step_before_it() -> None:
    made, log = list[int](), list[tuple[str, int]]()
    found = announced(batches(made), lambda batch, step: log.append((f"{batch.start} for", step)), 7, 10)
    waited = 0.0
    for step, batch in enumerate(found, 7):
        log.append((f"{batch.start} in", step))
        waited += batch.wait_s
    assert log == [
        *[("0 for", 7), ("1 for", 8), ("0 in", 7)],
        *[("2 for", 9), ("1 in", 8), ("2 in", 9)],
    ]
    assert made == [0, 1, 2]
    assert waited == 3.0


def test_nothing_changes_where_nobody_is_to_be_told() -> None:
    stream = batches([])
    assert announced(stream, None, 0, 3) is stream
