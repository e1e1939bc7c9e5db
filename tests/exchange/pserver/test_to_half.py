"""exchange.compress_pull: parameters come back in 16 bits."""

import pytest
import torch
from torch import nn

from phalanx.data.order import Share
from phalanx.errors import UserError
from phalanx.exchange.pserver.to_half import to_half
from phalanx.models.params import no_decay_names
from phalanx.optim.update import Update
from tests.exchange.pserver.pserver_jobs import SCHEDULE, SGD, JobOfProcesses, model, optim, samples, work


def rounded_training(steps: int) -> nn.Module:
    """Float32 weights are updated; gradients are those of the weights in fp16 (at first, of those that were set)."""
    torch.set_num_threads(1)
    whole, net, data = model(), model(), samples()
    update = Update(dict(whole.named_parameters()), no_decay_names(whole), optim(*SGD), SCHEDULE)
    for step, each in work(Share(), 0, steps):
        ((_, indices),) = each.micro
        chosen = torch.from_numpy(indices)
        torch.nn.functional.cross_entropy(net(data[0][chosen]), data[1][chosen]).backward()
        for kept, used in zip(whole.parameters(), net.parameters(), strict=True):
            kept.grad, used.grad = used.grad, None
        update(step)
        update.clear()
        for kept, used in zip(whole.parameters(), net.parameters(), strict=True):
            used.data.copy_(kept.data.half())
    whole.load_state_dict(net.state_dict() | dict(whole.named_parameters()))
    return whole


@pytest.mark.parametrize("job", [(2, 1, "tcp"), (1, 1, "ipc")], indirect=True)
def test_rounding_does_not_add_up_and_does_not_depend_on_the_transport(job: JobOfProcesses) -> None:
    remote = job.transport == "tcp"
    job.start_worker(0, compress_pull="fp16", remote=remote)
    expected = rounded_training(50).state_dict()
    job.join()
    for name, value in job.weights().items():
        assert torch.equal(value, expected[name]), name
    weights = 4 * sum(p.numel() for p in model().parameters())
    received = [line["bytes_received"] for line in job.lines("trainer-0") if "step" in line]
    assert not remote or all(weights / 2 <= each < weights / 2 + 2000 for each in received)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="70000 does not fit into fp16"):
        to_half(torch.tensor([1.0, -70_000.0, float("nan")]), "fp16")
    short = to_half(torch.tensor([float("inf"), float("nan"), 1 / 3]), "fp16")
    assert short.isinf().tolist() == [True, False, False]
    assert short.isnan().tolist() == [False, True, False]
    assert short[2] == torch.tensor(1 / 3).half()
    assert to_half(torch.tensor([70_000.0]), "bf16").isfinite().all()
