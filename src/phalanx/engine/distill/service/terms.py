"""What a trainer tells a teacher process when it joins: which teachers, what they compute with, what the views are."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from phalanx.config.schema import AugmentConfig, DistillConfig, MachineConfig
from phalanx.engine.inputs import Inputs
from phalanx.engine.model_spec import ModelSpec
from phalanx.machine.job_settings import JOB_WIDE
from phalanx.machine.settings import Settings, choose
from phalanx.net.code import CodeReport, other_code
from phalanx.net.control import Refused

Terms = dict[str, Any]

_MOST_THREADS = 1024
_LONGEST_NAME = 200


def terms_of_views(
    inputs: Inputs,
    machine: MachineConfig,
    spec: ModelSpec,
    config: DistillConfig,
    teachers: Sequence[str],
    process: str,
) -> Terms:
    """All that decides the logits of a view, besides its pixels and its place. JSON can hold it.

    `spec` is the student's; `teachers` are digests of their weights; `process` is for
    messages. Teachers use the job's settings and as many threads as the trainer: on a CPU the last bits of a sum may
    depend on how threads share it.
    """
    return {
        "teachers": list(teachers),
        "student": spec.saved(),
        "resize": config.resize,
        "precision": config.precision,
        "machine": {name: getattr(machine, name) for name in JOB_WIDE} | {"threads": inputs.settings.threads},
        "views": {
            "augment": inputs.augment.model_dump(mode="json"),
            "mean": list(inputs.mean),
            "std": list(inputs.std),
            "seed": inputs.seed,
            "sizes": [list(each) for each in inputs.sizes],
            "mix_until": inputs.mix_until,
            "epochs": inputs.view_epochs,
        },
        "phalanx": CodeReport.of(process).to_data(),
    }


@dataclass(frozen=True)
class JoinTerms:
    """The same, read from a message."""

    name: str
    teachers: tuple[str, ...]
    spec: ModelSpec
    resize: bool
    precision: str
    machine: MachineConfig
    views: dict[str, Any]
    code: Any

    @classmethod
    def read(cls, sent: Terms) -> "JoinTerms":
        """From what a trainer sent; refuses what is none."""
        try:
            machine = MachineConfig(**{name: sent["machine"][name] for name in (*JOB_WIDE, "threads")})
            if not isinstance(machine.threads, int) or machine.threads > _MOST_THREADS:
                raise Refused("garbage")
            if sent["precision"] not in ("fp32", "bf16"):
                raise Refused("garbage")
            read = cls(
                str(sent["name"])[:_LONGEST_NAME],
                tuple(map(str, sent["teachers"])),
                _spec(sent["student"]),
                bool(sent["resize"]),
                sent["precision"],
                machine,
                dict(sent["views"]),
                sent.get("phalanx"),
            )
            read.inputs(choose(MachineConfig(device="cpu")))
            return read
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise Refused("garbage") from error

    def inputs(self, settings: Settings) -> Inputs:
        """What makes the model's input of a micro-batch, as the trainer does."""
        views = self.views
        return Inputs(
            settings,
            AugmentConfig(**views["augment"]),
            [float(each) for each in views["mean"]],
            [float(each) for each in views["std"]],
            int(views["seed"]),
            tuple((int(until), int(size)) for until, size in views["sizes"]),
            mix_until=None if views["mix_until"] is None else int(views["mix_until"]),
            view_epochs=None if views["epochs"] is None else int(views["epochs"]),
        )

    def other_code(self) -> str:
        """Why the trainer's code would not compute the same; empty if it is the same code."""
        found = other_code(CodeReport.from_data(self.code, "the trainer"), CodeReport.of("the teacher"))
        return f"{found.what}; {found.remedy}" if found else ""


def _spec(sent: Any) -> ModelSpec:
    """A student's specification, each field of its own type."""
    return ModelSpec(
        str(sent["model"]),
        [str(each) for each in sent["classes"]],
        int(sent["channels"]),
        int(sent["image_size"]),
        [float(each) for each in sent["mean"]],
        [float(each) for each in sent["std"]],
        bool(sent["multi_label"]),
        bool(sent["margin"]),
    )
