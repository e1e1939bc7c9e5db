"""`phalanx.CrossValidation`: the folder of a cross-validation, its runs, and what they have found together."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from phalanx.api.arguments import refuse_unknown
from phalanx.api.flags import PathText, TrainFlags
from phalanx.api.history import History
from phalanx.api.numbers import Evaluation, Score
from phalanx.api.run import Run
from phalanx.api.show import folds_html, folds_text
from phalanx.errors import UserError
from phalanx.observe.curves import Axis
from phalanx.observe.plot_options import PlotOptions
from phalanx.observe.plots import curves_figure
from phalanx.runs.fold_paths import begun_folds
from phalanx.runs.folds_file import read_folds

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import nn

    from phalanx.api.run import ImageLike
    from phalanx.commands.predict import Prediction
    from phalanx.commands.predict_inputs import Split


class CrossValidation(Run):
    """A run for each fold: `phalanx.train(folds=5)` returns one. `best` and `last` are means over the folds.

    >>> folds = phalanx.train("digits", folds=2, settings={"model.name": "wrn10_1", "train.length": "4st"})
    >>> len(folds.runs), folds.finished
    (2, True)
    >>> folds.pooled["samples"]                              # each by the model that was not trained on it
    1442
    >>> 0 <= folds.std["top1"] <= 1
    True
    """

    @property
    def runs(self) -> list[Run]:
        """The runs of the folds that have begun, in order."""
        return [Run(path) for path in begun_folds(self.path).values()]

    @property
    def mean(self) -> dict[str, float]:
        """Means over the folds, by name: top1, topk, loss, epoch, last_top1, your own metrics."""
        return dict(self._found("mean"))

    @property
    def std(self) -> dict[str, float]:
        """Sample standard deviations over the folds, by the same names."""
        return dict(self._found("std"))

    @property
    def pooled(self) -> dict[str, Any]:
        """Over all samples, each by the model that was not trained on it: samples, top1, topk, loss, classes."""
        return dict(self._found("pooled"))

    @property
    def state(self) -> str:
        """`finished` if all folds are; otherwise what the last of them is."""
        if read_folds(self.path).get("finished"):
            return "finished"
        return next((run.state for run in reversed(self.runs) if not run.finished), "unfinished")

    @property
    def best(self) -> Score:
        """The means of the folds' best evaluations."""
        return _mean_score([run.best for run in self._begun()])

    @property
    def last(self) -> Score:
        """The means of the folds' latest evaluations."""
        return _mean_score([run.last for run in self._begun()])

    @property
    def classes(self) -> list[str]:
        """The names of the classes, which all folds share."""
        return self._begun()[0].classes

    def __repr__(self) -> str:
        return folds_text(self.path, read_folds(self.path))

    def _repr_html_(self) -> str:
        return folds_html(self.path, read_folds(self.path))

    def history(self, name: str) -> History:
        """The mean of a curve over the folds, at the steps that all of them have."""
        curves = [dict(zip(*run.history(name), strict=True)) for run in self._begun()]
        steps = sorted(set.intersection(*(set(curve) for curve in curves)))
        return History(steps, [fmean(curve[step] for curve in curves) for step in steps])

    def figure(self, axis: Axis = "epoch") -> "Figure":
        """The curves of all folds in one figure."""
        return curves_figure([run.path for run in self._begun()], PlotOptions(axis=axis)).figure

    @refuse_unknown
    def resume(
        self,
        *,
        at: str | None = None,
        accept_code: str | None = None,
        settings: Mapping[str, Any] | None = None,
        progress: bool | None = None,
        **flags: Unpack[TrainFlags],
    ) -> Run:
        """Continue at the fold where it stopped. Folds that are done are kept."""
        if at is not None:
            raise UserError(
                "a cross-validation has no place to go back to",
                why="each of its folds has checkpoints of its own",
                remedy=f"go back in one of them: runs[0].resume(at={at!r})",
            )
        return super().resume(accept_code=accept_code, settings=settings, progress=progress, **flags)

    def model(self, *, device: str = "cpu") -> "nn.Module":
        """Refused: each fold has a model of its own, `runs[0].model()`."""
        self._refuse("model")

    def predict(
        self,
        images: "ImageLike | Callable[..., object] | Sequence[ImageLike]",
        *,
        top_k: int = 5,
        threshold: float = 0.5,
        device: str = "auto",
        split: "Split" = "all",
    ) -> "list[Prediction]":
        """Refused: each fold has a model of its own, `runs[0].predict(…)`."""
        self._refuse("predict")

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
        """Refused: each fold has a model of its own, `runs[0].evaluate(…)`; `pooled` has what all found together."""
        self._refuse("evaluate")

    def _refuse(self, method: str) -> NoReturn:
        raise UserError(
            f"a cross-validation has no {method}() of its own",
            why="it has a model for each fold",
            remedy=f"choose one: .runs[0].{method}(); or train one on all of the data, without folds=",
        )

    def _begun(self) -> list[Run]:
        if not self.runs:
            raise UserError(f"no fold of {self.path} has begun", why="it was stopped before", remedy="resume()")
        return self.runs

    def _found(self, name: str) -> dict[str, Any]:
        report = read_folds(self.path)
        if name not in report:
            raise UserError(
                f"{self.path} has no {name} yet", why="not all of its folds are done", remedy="continue it: resume()"
            )
        found: dict[str, Any] = report[name]
        return found


def _mean_score(scores: Sequence[Score]) -> Score:
    """The mean of evaluations; of the user's own metrics those that all have."""
    names = set.intersection(*(set(score.metrics) for score in scores))
    return Score(
        step=round(fmean(score.step for score in scores)),
        epoch=fmean(score.epoch for score in scores),
        top1=fmean(score.top1 for score in scores),
        topk=fmean(score.topk for score in scores),
        k=scores[0].k,
        loss=fmean(score.loss for score in scores),
        metrics={name: fmean(score.metrics[name] for score in scores) for name in sorted(names)},
    )
