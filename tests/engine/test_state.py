"""The numbers of training that a checkpoint keeps."""

from torch import nn

from phalanx.engine.state import TrainState


def test_the_rate_of_an_intervals_first_step_is_kept() -> None:
    """Otherwise a resumed run would report another one than an uninterrupted run."""
    state = TrainState(nn.Linear(2, 2), step=7, lr_first=0.25)
    restored = TrainState(nn.Linear(2, 2))
    restored.restore(state.numbers())
    assert (restored.step, restored.lr_first) == (7, 0.25)
    older = {name: value for name, value in state.numbers().items() if name != "lr_first"}
    restored.restore(older)
    assert restored.lr_first is None
