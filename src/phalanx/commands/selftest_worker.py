"""One of the two processes of the selftest that add up a tensor: `RANK STORE BACKEND MEGABYTES OUT`."""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

_TURNS = 8


def main() -> None:
    rank, store, backend, megabytes, out = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group(
        backend,
        init_method=f"file://{store}",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=120),
        device_id=device if device.type == "cuda" else None,
    )
    tensor = torch.full((megabytes * 250_000,), float(rank + 1), device=device)
    dist.all_reduce(tensor)
    right = bool((tensor == 3.0).all())
    begin = time.perf_counter()
    for _ in range(_TURNS):
        dist.all_reduce(tensor)
    if device.type == "cuda":
        torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / _TURNS
    if rank == 0:
        found = {"backend": backend, "gb_per_s": megabytes / 1000 / seconds, "right": right}
        Path(out).write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
