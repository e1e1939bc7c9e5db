"""`phalanx.Run`: a run folder, its numbers, and the model that it trained."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from phalanx.api.arguments import reference, refuse_unknown, settings_layers
from phalanx.api.flags import PathText, TrainFlags
from phalanx.api.history import History, read_history
from phalanx.api.numbers import Evaluation, Score
from phalanx.api.show import run_html, run_text
from phalanx.config.resolve import resolve
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError
from phalanx.observe.curves import Axis
from phalanx.observe.plot_options import PlotOptions
from phalanx.observe.plots import curves_figure
from phalanx.observe.results import RunResult, read_results
from phalanx.runs import checkpoint
from phalanx.runs import events as ev
from phalanx.runs.evaluations import best_of, evaluations
from phalanx.runs.events import EVENTS_FILE, read_events
from phalanx.runs.folder import RunFolder

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.figure import Figure
    from PIL.Image import Image
    from torch import Tensor, nn

    from phalanx.commands.attack_report import Robustness
    from phalanx.commands.loading import Trained
    from phalanx.commands.predict import Prediction
    from phalanx.commands.predict_inputs import Split

    ImageLike = str | PathLike[str] | Image | np.ndarray[Any, Any] | Tensor


class Run:
    """A run: `phalanx.train` and `phalanx.load` return one. It reads the run folder anew at each question.

    >>> run = phalanx.load("runs/digits")
    >>> run.finished, run.best.top1 > 0.1, run.classes[:3]
    (True, True, ['0', '1', '2'])
    >>> run.config.train.batch_size
    64
    """

    def __init__(self, path: PathText) -> None:
        self.path = Path(path).absolute()
        self._loaded: tuple[Path, str, Trained] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        return run_text(self._result())

    def _repr_html_(self) -> str:
        return run_html(self._result())

    @property
    def config(self) -> RunConfig:
        """Every setting of the run: `run.config.optim.lr`. `run.config.model_dump()` is a dictionary."""
        return resolve([RunFolder(self.path).layer()]).config

    @property
    def state(self) -> str:
        """`finished`, `stopped`, or `unfinished`: it is running, or was killed."""
        return self._result().state

    @property
    def finished(self) -> bool:
        """Whether the run was trained to its end. `resume()` continues one that was not."""
        return self.state == "finished"

    @property
    def best(self) -> Score:
        """The most accurate evaluation so far."""
        return self._score(best_of(self._evaluations()))

    @property
    def last(self) -> Score:
        """The latest evaluation."""
        return self._score(max(self._evaluations(), key=lambda one: one.step, default=None))

    @property
    def classes(self) -> list[str]:
        """The names of the classes, in the order of the model's outputs."""
        return list(self._trained("cpu").spec.classes)

    def history(self, name: str) -> History:
        """A curve: train/loss, train/top1, train/topk, train/lr, val/loss, val/top1, val/topk or samples_per_s.

        Where a sample may have several labels: train/f1_micro, val/mAP, val/f1_micro and val/f1_macro.

        >>> run = phalanx.load("runs/digits")
        >>> steps, values = run.history("train/loss")     # plt.plot(*run.history("train/loss"))
        >>> len(steps) == len(values)
        True
        """
        return read_history(self.path, name)

    def figure(self, axis: Axis = "epoch") -> "Figure":
        """Accuracy, loss and learning rate as a matplotlib figure, against `epoch`, `step` or `time`.

        >>> phalanx.load("runs/digits").figure().savefig("curves.png")
        """
        return curves_figure([self.path], PlotOptions(axis=axis)).figure

    def model(self, *, device: str = "cpu") -> "nn.Module":
        """The model with the best weights (averaged ones where there are some), in eval mode, made of plain layers.

        >>> import torch
        >>> model = phalanx.load("runs/digits").model()
        >>> model(torch.zeros(2, 1, 16, 16)).shape
        torch.Size([2, 10])
        """
        from phalanx.api.torch_state import restored
        from phalanx.commands.loading import load_trained

        with restored():
            plain = {"device": device, "fast_path": "off", "compile": False}
            return load_trained(self.path, plain).model.requires_grad_(True)

    def predict(
        self,
        images: "ImageLike | Callable[..., object] | Sequence[ImageLike]",
        *,
        top_k: int = 5,
        threshold: float = 0.5,
        device: str = "auto",
        split: "Split" = "all",
    ) -> "list[Prediction]":
        """What the best model sees on images, in order.

        An image is a path (a file, a folder, a glob), a PIL image, a numpy array (height, width[, channels]) or a
        tensor ([channels,] height, width) of uint8 or of floats in 0..1. Each is prepared as in validation. Data that
        `phalanx.train` takes is taken here too, all of it or one `split` ("train", "val").
        Where an image may have several labels, `labels` of a prediction are those with a probability above
        `threshold`.

        >>> import numpy
        >>> run = phalanx.load("runs/digits")
        >>> [prediction] = run.predict(numpy.zeros((8, 8), dtype=numpy.uint8), top_k=3)
        >>> prediction.label == prediction.classes[0][0], len(prediction.classes)
        (True, 3)
        """
        if top_k < 1:
            raise UserError(f"top_k cannot be {top_k}", why="it counts classes", remedy="top_k=1 or more")
        from phalanx.api.images import given_sources
        from phalanx.api.torch_state import restored
        from phalanx.commands.predict import predict

        with restored():
            trained = self._trained(device)
            trained.settings.apply()
            sources = given_sources(images, trained, split)
            return [one for source in sources for batch in predict(trained, source, top_k, threshold) for one in batch]

    def evaluate(
        self,
        data: "PathText | Callable[..., object] | None" = None,
        *,
        settings: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        device: str = "auto",
        precision: str | None = None,
        out: PathText | None = None,
        progress: bool | None = None,
    ) -> Evaluation:
        """Measure the best model on other data, or on its own validation data, as `phalanx eval` does.

        `data` is all that `phalanx.train` takes; `settings` tell how to read it: {"data.label_field": "fine"}.

        >>> phalanx.load("runs/digits").evaluate().top1 > 0.1
        True
        """
        from phalanx.api.session import make_console
        from phalanx.api.torch_state import restored
        from phalanx.commands.evaluate import measure

        with restored():
            where = None if out is None else Path(out)
            source = None if data is None else reference(data) if callable(data) else str(data)
            console, layers = make_console(progress), settings_layers(settings)
            measured = measure(console, self.path, source, batch_size, device, precision, where, layers)
        result, numbers, totals = measured.result, measured.result.numbers, measured.result.numbers.totals
        return Evaluation(
            top1=_or_nan(numbers.top1),
            topk=_or_nan(numbers.topk),
            k=result.k,
            loss=totals.loss,
            samples=totals.samples,
            data=result.data,
            classes=measured.classes,
            unreadable=result.bad_images,
            folder=measured.folder,
            metrics=numbers.metrics,
            labels=measured.labels,
        )

    def attack(
        self,
        attack: str = "pgd",
        *,
        eps: str | float = "8/255",
        step: str | float | None = None,
        steps: int | None = None,
        norm: str = "linf",
        restarts: int = 1,
        targeted: bool = False,
        data: "PathText | Callable[..., object] | None" = None,
        settings: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
        device: str = "auto",
        precision: str | None = None,
        out: PathText | None = None,
        progress: bool | None = None,
    ) -> "Robustness":
        """Measure the best model before and under an attack, as `phalanx eval --attack` does.

        `eps` and `step` are in pixels of 0 to 1, as numbers or fractions. The worst of `restarts` counts.

        >>> found = phalanx.load("runs/digits").attack(eps="8/255", steps=5)
        >>> found.robust_top1 <= found.top1, found.samples
        (True, 355)
        """
        if restarts < 1:
            raise UserError(f"restarts cannot be {restarts}", why="it counts attacks", remedy="restarts=1 or more")
        from phalanx.api.session import make_console
        from phalanx.api.torch_state import restored
        from phalanx.commands.evaluate_attack import attack_config, measure_attack

        config = attack_config(attack, norm=norm, eps=eps, step=step, steps=steps, targeted=targeted)
        with restored():
            where = None if out is None else Path(out)
            source = None if data is None else reference(data) if callable(data) else str(data)
            console, layers = make_console(progress), settings_layers(settings)
            return measure_attack(
                console, self.path, config, restarts, source, batch_size, device, precision, where, layers
            )

    @refuse_unknown
    def resume(
        self,
        *,
        at: str | None = None,
        accept_code: str | None = None,
        settings: Mapping[str, Any] | None = None,
        progress: bool | None = None,
        **flags: Unpack[TrainFlags],
    ) -> "Run":
        """Continue the run on this machine from its newest checkpoint, or from the one `at` "30ep" or "50%".

        Flags and settings change it, such as `epochs=10` to train longer. If your own code has changed since the run
        began, `accept_code` chooses "run" (the run's copy) or "new". `phalanx.launch(resume=run, hosts=…)`
        continues on other hosts. A finished run that nothing is to change is returned as it is.

        >>> run = phalanx.load("runs/digits")
        >>> run.resume(epochs=run.last.epoch + 1).last.epoch == run.last.epoch
        True
        """
        if self.finished and at is None and not settings and all(value is None for value in flags.values()):
            return self
        from phalanx.api.train import train

        return train(resume=self.path, at=at, accept_code=accept_code, settings=settings, progress=progress, **flags)

    def _result(self) -> RunResult:
        if not (self.path / EVENTS_FILE).is_file():  # submitted to a batch system, and waiting
            return RunResult(self.path.name, str(self.path), remarks=["training has not begun"])
        return read_results([self.path])[0]

    def _evaluations(self) -> list[ev.Eval]:
        return evaluations(read_events(self.path))

    def _score(self, found: ev.Eval | None) -> Score:
        if found is None:
            raise UserError(
                f"{self.path} has no evaluation yet",
                why="a run is evaluated after each eval.every, by default an epoch",
                remedy="train longer: run.resume()",
            )
        accuracies = _or_nan(found.top1), _or_nan(found.topk)
        return Score(found.step, found.epoch, *accuracies, found.k, found.loss, found.metrics)

    def _trained(self, device: str) -> "Trained":
        """The best model, read once for as long as it is the best."""
        from phalanx.api.torch_state import restored
        from phalanx.commands.predict import load_for_prediction

        path = checkpoint.find(self.path)
        if self._loaded is None or self._loaded[:2] != (path, device):
            with restored():
                self._loaded = path, device, load_for_prediction(path, device)
        return self._loaded[2]


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
