"""Batches from data servers are those that a trainer would have made itself, each exactly once, whatever dies."""

import signal
from contextlib import closing
from pathlib import Path

import pytest
import torch

from phalanx.data.base import Batch
from phalanx.data.order import Share, epoch_order
from phalanx.data.service.lease_scheduler import Patience
from phalanx.errors import UserError
from phalanx.net import shared_memory as memory
from tests.data.service.servers import BATCH, Servers, configured, content, pipeline_of, taken, write_photographs

NUM_BATCHES = 20  # more than two epochs


@pytest.fixture(scope="module")
def expected(photographs: Path) -> list[object]:
    """What a trainer makes itself, with one thread."""
    return content(taken(pipeline_of(configured(photographs)), NUM_BATCHES))


def joined(shares: list[list[Batch]]) -> list[Batch]:
    """The batches of all workers put together, step by step."""
    return [
        Batch(parts[0].epoch, parts[0].start, [m for part in parts for m in part.micro], parts[0].total, parts[0].last)
        for parts in zip(*shares, strict=True)
    ]


def test_batches_are_the_same_however_they_are_made(expected: list[object], standing: Servers) -> None:
    config = standing.config
    assert content(taken(pipeline_of(config, threads=2), NUM_BATCHES)) == expected
    whole = content(taken(pipeline_of(config, share=Share(0, 1, 2)), 5))
    halves = [taken(pipeline_of(config, share=Share(rank, 2)), 5) for rank in range(2)]
    assert content(joined(halves)) == whole
    halves = [taken(pipeline_of(config, share=Share(rank, 2), remote=standing.service(0)), 5) for rank in range(2)]
    assert content(joined(halves)) == whole
    service = standing.service(0)
    assert content(taken(pipeline_of(config, remote=service), NUM_BATCHES)) == expected
    assert service.said("joined, by shared memory")
    report = service.report()[0]
    assert report["samples_per_s"] > 0
    assert report["by"] == "shared memory"


def test_repeated_samples_of_rare_classes_come_from_servers(tmp_path: Path) -> None:
    data = write_photographs(tmp_path / "data", 12)
    for number in range(3, 12):
        (data / "b" / f"{number}.jpg").unlink()
    servers = Servers(tmp_path, configured(data, "data.sampling=oversample"))
    try:
        servers.start(0)
        mine = pipeline_of(servers.config)
        assert (len(mine.source), mine.epoch_samples) == (12, 20)
        made = taken(pipeline_of(servers.config, remote=servers.service(0)), 6)
        assert content(made) == content(taken(mine, 6))
        assert max(int(batch.micro[0].indices.max()) for batch in made) >= 12, "repeats are among them"
    finally:
        servers.kill()


def test_three_servers_and_one_is_killed_in_mid_epoch(expected: list[object], servers: Servers) -> None:
    for number in range(3):
        servers.start(number, pause_s=0.02)
    servers.await_all()
    service = servers.service(0, 1, 2)
    killed = False

    def kill() -> None:
        nonlocal killed
        if not killed and all(link.joined and link.samples for link in service.links):
            servers.signal(1, signal.SIGKILL)
            killed = True

    assert content(taken(pipeline_of(servers.config, remote=service), NUM_BATCHES, kill)) == expected
    assert killed
    assert service.said("data-1 disconnected")
    assert service.scheduler is not None
    assert service.scheduler.leased_again


def test_every_sample_exactly_once_though_one_is_killed_and_another_joins(servers: Servers) -> None:
    for number in range(2):
        servers.start(number, pause_s=0.02)
    servers.await_all()
    service = servers.service(0, 1, 2)
    served = pipeline_of(servers.config, remote=service)
    delivered: dict[int, list[int]] = {}
    killed = False
    with closing(served.stream()) as stream:
        for batch in stream:
            delivered.setdefault(batch.epoch, []).extend(i for m in batch.micro for i in m.indices.tolist())
            if not killed and service.links[0].samples:
                servers.signal(0, signal.SIGKILL)
                servers.start(2)
                killed = True
            if batch.last and service.links[2].samples:
                break
            assert batch.epoch < 200, "the new server is never asked"
    assert killed
    for epoch, indices in delivered.items():
        assert indices == epoch_order(served.seed, epoch, len(served.source)).tolist()


def test_a_stopped_server_loses_its_leases_and_its_late_batches_are_dropped(
    expected: list[object], servers: Servers
) -> None:
    for number in range(2):
        servers.start(number, pause_s=0.1)
    servers.await_all()
    service = servers.service(0, 1, patience=Patience(silent_s=0.5))
    stopped = continued = False

    def stop() -> None:
        nonlocal stopped, continued
        if not stopped and len(service.links[0].owed) > 1:
            servers.signal(0, signal.SIGSTOP)
            stopped = True
        elif stopped and not continued and service.said("data-0 has been silent"):
            servers.signal(0, signal.SIGCONT)
            continued = True

    batches = taken(pipeline_of(servers.config, remote=service), NUM_BATCHES, stop)
    assert continued
    assert content(batches) == expected
    assert service.scheduler is not None
    assert service.scheduler.leased_again
    assert service.links[0].late + servers.end(0)["dropped"]


def test_batches_that_travel_are_the_same(
    expected: list[object], standing: Servers, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "create", lambda size: memory.SharedMemory(torch.zeros(size, dtype=torch.uint8), None))
    servers.start(0, "tcp://127.0.0.1:*")
    service = servers.service(addresses=(servers.bound(0).removeprefix("tcp://"), standing.address(0)))
    assert content(taken(pipeline_of(servers.config, remote=service), NUM_BATCHES)) == expected
    assert service.said("joined, by the network")
    assert all(link.samples for link in service.links)


def test_a_run_goes_on_at_its_cursor_whoever_served_it_before(standing: Servers) -> None:
    local = content(taken(pipeline_of(standing.config), 4, epoch=1, start=2 * BATCH))
    assert (
        content(taken(pipeline_of(standing.config, remote=standing.service(0)), 4, epoch=1, start=2 * BATCH)) == local
    )


def test_a_server_that_would_make_other_batches_is_refused_with_the_difference(
    standing: Servers, photographs: Path, tmp_path: Path
) -> None:
    def refusal(config: object) -> str:
        with pytest.raises(UserError, match="would make other batches") as error:
            taken(pipeline_of(config, remote=standing.service(0, config=config)), 1)  # type: ignore[arg-type]
        return error.value.why

    assert refusal(configured(photographs, "augment.flip=0.1", "data.prefetch=2")) == (
        "augment.flip is 0.1 for the trainer and 0.5 for the server"
    )
    assert refusal(configured(photographs, "train.seed=4")) == "train.seed is 4 for the trainer and 3 for the server"
    fewer = write_photographs(tmp_path / "fewer", count=30)
    assert "training samples is 48 for the trainer and 64 for the server" in refusal(configured(fewer))
    others = write_photographs(tmp_path / "others")
    for path in others.glob("*/*.jpg"):
        path.write_bytes((photographs / "a" / "0.jpg").read_bytes())
    assert refusal(configured(others)) == "the same samples look different there: other files under the same labels"
    moved = write_photographs(tmp_path / "moved")
    assert taken(pipeline_of(configured(moved), remote=standing.service(0, config=configured(moved))), 1)


def test_without_any_server_a_trainer_waits_then_says_why(standing: Servers, expected: list[object]) -> None:
    short = Patience(alone_s=0.1, timeout_s=0.6)
    service = standing.service(addresses=("ipc:///nowhere/at-all",), patience=short)
    with pytest.raises(UserError, match="no data server") as error:
        taken(pipeline_of(standing.config, remote=service), 1)
    assert "nobody listens" in error.value.why
    assert "serve-data" in error.value.remedy
    assert service.said("no data server is there")


def test_a_server_with_another_key_is_told_as_such(servers: Servers) -> None:
    servers.start(0, "tcp://127.0.0.1:*")
    short = Patience(alone_s=0.1, timeout_s=3.0)
    service = servers.service(addresses=(servers.bound(0),), key="guessed", patience=short)
    with pytest.raises(UserError, match="no data server") as error:
        taken(pipeline_of(servers.config, remote=service), 1)
    assert "another PHALANX_KEY" in error.value.why


def test_without_any_server_a_trainer_may_make_its_batches_itself(
    expected: list[object], servers: Servers, photographs: Path
) -> None:
    process = servers.start(0)
    service = servers.service(0, config=configured(photographs, "data.service_fallback=true"))
    killed = False

    def kill() -> None:
        nonlocal killed
        if not killed:
            process.kill()
            killed = True

    assert content(taken(pipeline_of(servers.config, remote=service), NUM_BATCHES, kill)) == expected
    assert service.said("batches are made here")


def test_bad_images_are_counted_and_told_as_if_they_were_read_here(tmp_path: Path) -> None:
    folder = write_photographs(tmp_path / "data")
    for name in ("a/3.jpg", "a/4.jpg", "b/7.jpg"):
        (folder / name).write_bytes(b"no image")
    servers = Servers(tmp_path, configured(folder, "data.bad_images_cap=0.05"))
    try:
        servers.start(0)
        local = pipeline_of(servers.config)
        served = pipeline_of(servers.config, remote=servers.service(0))
        assert content(taken(served, NUM_BATCHES)) == content(taken(local, NUM_BATCHES))
        assert served.bad.seen == local.bad.seen
        assert len(served.bad.seen) > 1
        stopping = configured(folder, "data.bad_images=stop")
        errors = []
        for remote in (None, servers.service(0, config=stopping)):
            with pytest.raises(UserError, match="is not a readable image") as error:
                taken(pipeline_of(stopping, remote=remote), NUM_BATCHES)
            errors.append(str(error.value))
        assert errors[0] == errors[1]

        def ruin() -> None:
            for path in folder.glob("*/*.jpg"):
                path.write_bytes(b"no image")

        patient = configured(folder, "data.bad_images_cap=1")
        served = pipeline_of(patient, remote=servers.service(0, config=patient))
        with pytest.raises(UserError, match=r"images in a row do not decode.*, says the data server at"):
            taken(served, NUM_BATCHES, ruin)
    finally:
        servers.kill()
