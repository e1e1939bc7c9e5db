"""All that makes CPUs fast: convolution algorithms, batch norm fused with what follows, and tuning.

The rest of the package uses these functions and no module of this folder (tests/test_imports.py):

- `prepare(model, fast_path, to_train=…)` switches the layers of a model to the fast path;
- `choose(model, shapes, settings)` times the algorithms for the shapes that training will see;
- `state(model)` returns the chosen algorithms as JSON, and `load(model, saved)` restores them from a checkpoint;
- `agree(model, chosen)` makes a worker use the first worker's choice;
- `forget(model)` drops every choice.
"""

from phalanx.cpu.fast_path import agree, choose, forget, load, prepare, state

__all__ = ["agree", "choose", "forget", "load", "prepare", "state"]
