"""Predict published tables, each from the speed of one worker or from the table's first row; nothing else is fitted.

    python -m benchmarks.plan_published [--markdown FILE]

`given` is the row that the speed is taken from. What the publication does not say is in the column `assumed`.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from phalanx.api.plan_setup import Asked, make_setup
from phalanx.plan.compute import step_times
from phalanx.plan.predict import predict
from phalanx.plan.setup import Arrangement, Setup
from phalanx.plan.simulate import simulate

IMAGENET = 1_281_167
TIMES = 6  # rounds of adjusting the speed of one worker to a given row


@dataclass(frozen=True)
class Line:
    """A row of a published table, and its prediction, in the publication's own unit."""

    table: str
    what: str
    unit: str
    published: float
    predicted: float | None  # None: the row that is given
    assumed: str = ""

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.published - 1


def setup_of(model: str, overrides: list[str], data: str = "imagenet", **cluster: Any) -> Setup:
    words = [f"model.name={model}", f"data.source={data}", "train.length=90ep", *overrides]
    setup, _ = make_setup(Asked("imagenet-resnet50", words, cluster=cluster))
    return setup


def step_s(setup: Setup, arranged: Arrangement) -> float:
    return predict(setup, arranged, ranges=False).step_s.expected


def calibrated(setup: Setup, arranged: Arrangement, given_s: float) -> Setup:
    """With the speed of one worker with which the given row has the published step time."""
    batch = setup.batch(arranged.workers)
    reached = setup.achieved
    times = step_times(setup.profile, setup.device, reached, setup.precision, batch, setup.kept_values)
    alone = times.compute_s + times.update_s
    for _ in range(TIMES):
        speed = {"images_per_s": batch / alone, "batch": batch}
        setup = setup.but(setup.cluster.but(speed=speed))
        alone += given_s - step_s(setup, arranged)
    return setup


def with_batch(setup: Setup, batch: int) -> Setup:
    train = setup.config.train.model_copy(update={"batch_size": batch})
    return replace(setup, config=setup.config.model_copy(update={"train": train}))


# tensorpack with Horovod


def tensorpack() -> Iterator[Line]:
    """github.com/tensorpack/benchmarks, ResNet-Horovod: hours of 90 epochs."""
    table = "tensorpack + Horovod, ResNet-50 on P100s, minutes"
    assumed = "8 GPUs a host with NVLink, 100 Gbit/s RoCE"
    rows = ((32, 64, 309), (128, 32, 100), (128, 64, 83), (256, 32, 69))
    setup = setup_of("resnet50", ["train.batch_size=64"], device="p100", hosts=32, per_host=8, link="roce-100")
    steps = 90 * IMAGENET / (32 * 64)
    setup = calibrated(setup, Arrangement(32), 60 * 309 / steps)
    for gpus, batch, minutes in rows:
        steps = 90 * IMAGENET / (gpus * batch)
        predicted = step_s(with_batch(setup, batch), Arrangement(gpus)) * steps / 60
        given = (gpus, batch) == (32, 64)
        yield Line(table, f"{gpus} GPUs × {batch}", "min", minutes, None if given else predicted, assumed)


# Goyal et al.


def goyal() -> Iterator[Line]:
    """arXiv 1706.02677, section 5.3: 256 GPUs at about 90 % of linear, from one server of 8."""
    setup = setup_of("resnet50", ["train.batch_size=32"], device="p100", hosts=32, per_host=8, link="roce-50")
    eight, all_ = step_s(setup, Arrangement(8)), step_s(setup, Arrangement(256))
    said = "speed of one P100 from TensorFlow's benchmarks; shares of links as in the table"
    yield Line("Goyal et al., ResNet-50, of linear from 8 GPUs", "256 GPUs × 32", "%", 90.0, 100 * eight / all_, said)


# PaddleClas


def paddleclas() -> Iterator[Line]:
    """PaddleClas, distributed training: days of SSLD training on V100s; speed-ups of 8 cards and of 4 × 8 cards."""
    table = "PaddleClas on V100s, speed-up"
    cards = {  # days on one card, speed-up of 8, of 4 × 8 to 8
        "PPHGNet_base": (133.2, 7.04, 3.90),
        "PPLCNetV2_base": (31.6, 4.93, 3.83),
        "PPLCNet_x0_25": (21.8, 3.99, 3.48),
    }
    nets = {"PPHGNet_base": "hgnet_base", "PPLCNetV2_base": "PPLCNet_x2_0", "PPLCNet_x0_25": "PPLCNet_x0_25"}
    images = 5e6 * 360  # of the recipes: 5 M images, 360 epochs
    input_rate = images / (6.2 * 86400)  # of a host, from the days of the smallest network on 8 cards
    for name, (days, eight, four) in cards.items():
        setup = setup_of(
            nets[name],
            ["train.batch_size=64"],
            device="v100-32gb",
            hosts=4,
            per_host=8,
            link="roce-100",
            speed={"images_per_s": images / (days * 86400), "batch": 64},
            input_images_per_s=input_rate,
        )
        one, host, all_ = (step_s(setup, Arrangement(count)) for count in (1, 8, 32))
        bound = f"input of {input_rate:,.0f} images/s a host, from the days of PPLCNet_x0_25 on 8 cards"
        given = name == "PPLCNet_x0_25"
        yield Line(table, f"{name}, 8 cards to 1", "×", eight, None if given else 8 * one / host, bound)
        others = "100 Gbit/s RoCE, 64 images a card, layers of hgnet_base and PPLCNet_x2_0 for two of them"
        yield Line(table, f"{name}, 4 × 8 cards to 8", "×", four, 4 * host / all_, others)


# TensorFlow's parameter servers


def tensorflow() -> Iterator[Line]:
    """github.com/feifeibear/Distributed-ResNet-Tensorflow: steps/s on Piz Daint, one P100 a node, gRPC."""
    network = "TCP over Aries as 10 Gbit/s Ethernet; one message a variable, handled by 12 cores; else our servers"
    table = "TensorFlow parameter servers, ImageNet, ResNet-50, 128 images a worker, steps/s"
    setup = setup_of("resnet50", ["train.batch_size=128"], device="p100", hosts=128, link="10Gbit")
    given = Arrangement(8, "pserver", 8)
    setup = calibrated_by_input(setup, given, 1 / 0.93)
    for servers, workers, speed in ((8, 8, 0.93), (4, 8, 0.90), (8, 128, 0.285)):
        predicted = 1 / _step_of(setup, Arrangement(workers, "pserver", servers))
        said = f"{network}; the given row is bound by input (5 threads decode)"
        yield Line(
            table, f"{servers} ps, {workers} workers", "", speed, None if workers == servers else predicted, said
        )
    table = "TensorFlow parameter servers, CIFAR-10, ResNet-50 of 6n+2 layers, 128 images a step, steps/s"
    setup = setup_of("cifar_resnet50", ["train.batch_size=128"], data="cifar-10", device="p100", hosts=8, link="10Gbit")
    setup = calibrated(setup, Arrangement(1), 1 / 13.94)
    yield Line(table, "local", "", 13.94, None, "")
    for servers, workers, speed in ((1, 1, 10.19), (2, 4, 20.3), (4, 8, 19.19)):
        arranged = Arrangement(workers, "pserver", servers)
        predicted = 1 / _step_of(with_batch(setup, 128 // workers), arranged)
        yield Line(table, f"{servers} ps, {workers} workers", "", speed, predicted, network)


def calibrated_by_input(setup: Setup, arranged: Arrangement, given_s: float) -> Setup:
    """The given row's step time is that of its input: a worker computes faster, and waits for its batch."""
    return setup.but(setup.cluster.but(input_images_per_s=setup.batch(arranged.workers) / given_s))


def _step_of(setup: Setup, arranged: Arrangement) -> float:
    """TensorFlow sends every variable by itself; a node's 12 cores handle messages, where our server has one."""
    job = setup.job(arranged)
    server = job.server.model_copy(update={"message": job.server.message / 12})
    return simulate(job.but(slice_bytes=1, whole_tensors=True, server=server)).step_s


def tables(lines: list[Line]) -> str:
    """Markdown: a table for each publication, with what was assumed."""
    text: list[str] = []
    for name in dict.fromkeys(line.table for line in lines):
        rows = [line for line in lines if line.table == name]
        said = dict.fromkeys(line.assumed for line in rows if line.assumed)
        text += ["", f"{name} (assumed: {'; '.join(said)}):", ""]
        text += ["| | published | predicted | error |", "| --- | ---: | ---: | ---: |"]
        for row in rows:
            found = "given" if row.predicted is None else f"{row.predicted:.3g}{row.unit}"
            error = "" if row.error is None else f"{100 * row.error:+.0f} %"
            text.append(f"| {row.what} | {row.published:.3g}{row.unit} | {found} | {error} |")
    errors = [abs(line.error) for line in lines if line.error is not None]
    within = sum(error <= 0.15 for error in errors)
    text += ["", f"{within} of {len(errors)} predictions are within 15 %; median error {100 * median(errors):.0f} %."]
    return "\n".join(text[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path)
    markdown = parser.parse_args().markdown
    text = tables([line for table in (tensorpack, goyal, paddleclas, tensorflow) for line in table()])
    print(text)
    if markdown is not None:
        markdown.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
