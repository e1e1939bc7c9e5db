"""`phalanx train synthetic` beside plain PyTorch loops on the same model, batch and size, run in turn.

    .venv/bin/python benchmarks/train_vs_plain.py --model resnet50 --batch 32 --rounds 2

Each measurement is a process of its own; the table gives medians over rounds and the ratio to each plain loop.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LOOPS = ("fp32-nchw", "fp32-channels_last", "bf16-channels_last")


def plain_loop(kind: str, model_name: str, batch: int, size: int, steps: int) -> None:
    """What most scripts run: a timm model, a fixed random batch, SGD with momentum. Prints samples/s of each step."""
    import timm
    import torch
    import torch.nn.functional as F

    precision, layout = kind.split("-")
    memory_format = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    model = timm.create_model(model_name).to(memory_format=memory_format).train()
    images = torch.randn(batch, 3, size, size).contiguous(memory_format=memory_format)
    labels = torch.randint(1000, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        print(batch / (time.perf_counter() - begin), flush=True)


def measure_plain(kind: str, arguments: argparse.Namespace) -> list[float]:
    command = [sys.executable, __file__, "--loop", kind, "--model", arguments.model, "--batch", str(arguments.batch)]
    command += ["--size", str(arguments.size), "--steps", str(arguments.steps)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [float(line) for line in output.split()][1:]


def measure_phalanx(arguments: argparse.Namespace) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        command = [sys.executable, "-m", "phalanx", "train", "synthetic", "--model", arguments.model, "--out", str(out)]
        command += ["--batch-size", str(arguments.batch), "--log-every", "1", f"train.length={arguments.steps}st"]
        command += [f"data.synthetic.size={arguments.size}", "data.synthetic.val_samples=2"]
        subprocess.run(command, check=True, capture_output=True)
        events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    return [event["samples_per_s"] for event in events if event["kind"] == "step"][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=4, help="per round; the first is left out")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--loops", default=",".join(LOOPS), help="which plain loops to run")
    parser.add_argument("--loop", choices=LOOPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.loop:
        plain_loop(arguments.loop, arguments.model, arguments.batch, arguments.size, arguments.steps)
        return
    speeds: dict[str, list[float]] = {name: [] for name in ("phalanx", *arguments.loops.split(","))}
    for number in range(arguments.rounds):
        for name in speeds:
            print(f"round {number + 1} of {arguments.rounds}: {name} …", file=sys.stderr)
            speeds[name] += measure_phalanx(arguments) if name == "phalanx" else measure_plain(name, arguments)
    ours = statistics.median(speeds["phalanx"])
    title = f"{arguments.model}, {arguments.size}², batch {arguments.batch}"
    print(f"| {title} | samples/s | lowest-highest | phalanx is |")
    print("| --- | --- | --- | --- |")
    for name, values in speeds.items():
        median = statistics.median(values)
        print(f"| {name} | {median:.2f} | {min(values):.2f}-{max(values):.2f} | {ours / median:.2f}× |")


if __name__ == "__main__":
    main()
