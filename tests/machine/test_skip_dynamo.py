"""torch's optimizers without its compiler."""

import subprocess
import sys

import pytest
import torch

from phalanx.config.resolve import parse_override, resolve
from phalanx.machine.skip_dynamo import bare_step
from phalanx.optim.update import make_optimizer

PROGRAM = """
import sys, torch
from phalanx.config.resolve import resolve
from phalanx.data.sources.embedded import open_digits
from phalanx.optim.schedule import Schedule
from phalanx.optim.update import Update
weight = torch.nn.Parameter(torch.ones(3))
schedule = Schedule("cosine", 0.1, 60, 7, "linear", 0.0, (), 0.1, 2.0, 0.0)
update = Update({"w": weight}, [], resolve([]).config.optim, schedule)
(weight**2).sum().backward()
update(0)
update.clear()
update.load(*update.state())
open_digits("train", channels=None)
heavy = [name for name in ("torch._dynamo", "sklearn") if name in sys.modules]
print(float(weight[0].detach()) < 1, weight.grad, heavy)
"""


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "rmsprop", "lamb"])
def test_a_step_is_the_step_that_torch_makes(name: str) -> None:
    after = []
    for bare in (False, True):
        torch.manual_seed(0)
        weights = [torch.randn(5, 3, requires_grad=True), torch.randn(4, requires_grad=True)]
        optim = resolve([parse_override(f"optim.name={name}")]).config.optim
        optimizer = make_optimizer([{"params": weights, "weight_decay": 0.1}], optim, 0.1)
        for _ in range(3):
            sum((weight**3).sum() for weight in weights).backward()  # type: ignore[union-attr]
            if bare:
                with torch.no_grad():
                    bare_step(optimizer)()
            else:
                optimizer.step()
        after.append(weights)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*after, strict=True))


EXCHANGE = """
import sys, tempfile, torch
import torch.distributed as dist
from phalanx.exchange.collective.gradients import distributed
dist.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
ddp = distributed(torch.nn.Linear(3, 1, bias=False))
ddp(torch.ones(2, 3)).sum().backward()
print(ddp.module.weight.grad.tolist(), "torch._dynamo" in sys.modules, "_dynamo" in vars(torch))
import torch._dynamo
print(torch._dynamo.utils.get_optimize_ddp_mode(), ddp._use_python_reducer)
dist.destroy_process_group()
"""


def test_an_exchange_imports_no_compiler_and_answers_as_it_would() -> None:
    done = subprocess.run([sys.executable, "-c", EXCHANGE], capture_output=True, text=True, check=True)
    assert done.stdout == "[[2.0, 2.0, 2.0]] False False\nddp_optimizer False\n"


def test_training_imports_neither_the_compiler_nor_scikit_learn() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "True None []\n"
