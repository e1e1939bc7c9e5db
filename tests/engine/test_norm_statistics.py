"""Statistics of batch norms, computed from data for weights that were never trained with them."""

import numpy as np
import torch
from torch import Tensor, nn

from phalanx.data.augment.framing import eval_framing
from phalanx.data.order import Share
from phalanx.data.pipeline import shuffled_batches
from phalanx.data.sources.open import open_data
from phalanx.engine.norm_statistics import compute_statistics
from tests.engine.tiny import network, tiny_run


class WithAuxiliary(nn.Module):
    """A network with a batch norm that only training uses."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.auxiliary = network(norm=True), nn.BatchNorm1d(4)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.body(images)
        return self.auxiliary(logits) if self.training else logits


def test_a_norm_that_no_pass_reaches_keeps_its_statistics() -> None:
    model = WithAuxiliary()
    run = tiny_run(model=model)
    source = open_data(run.config.data, threads=1).train
    framing = eval_framing(run.config.data, run.spec.image_size, source)
    batches = shuffled_batches(source, framing, 16, Share(), seed=0)
    compute_statistics(model, batches, run.engine, run.exchange.group)
    assert model.auxiliary.running_mean is not None
    assert model.auxiliary.running_mean.tolist() == [0.0] * 4
    assert all(bool(torch.isfinite(buffer).all()) for buffer in model.buffers())
    assert np.any(model.body.get_submodule("1").get_buffer("running_mean").numpy())
