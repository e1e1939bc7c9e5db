"""The settings of `distill`: teachers, what is learned from them, and where their answers come from."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from phalanx.config.section import Section
from phalanx.config.value_types import Count, NotNegative, Positive, Share

Entry = str | dict[str, Any]


def _complete(entry: Entry) -> Entry:
    if isinstance(entry, dict):
        name, weight = entry.get("name"), entry.get("weight", 1.0)
        right = isinstance(name, str) and isinstance(weight, (int, float)) and not isinstance(weight, bool)
        if entry.keys() - {"name", "weight"} or not right or weight <= 0:
            raise ValueError(f"{entry} should be RUN, FILE or a timm name; or {{name: RUN, weight: 2}}")
    return entry


TeacherEntry = Annotated[Entry, AfterValidator(_complete)]
DistillLoss = Literal["kl", "js", "dist", "dkd", "feature", "mutual"]


class DistillConfig(Section):
    """Knowledge distillation. It is off unless there are teachers, or two students teach each other (mutual)."""

    teachers: list[TeacherEntry] = Field(
        [],
        description="a run's folder (its best checkpoint), a .safetensors file, or a timm name for its published "
        "weights; or {name: RUN, weight: 2}: the answers of several teachers count by their weights",
    )
    loss: DistillLoss = Field(
        "kl",
        description="kl (Hinton), js (SSLD: needs no labels), dist (correlations), dkd (decoupled), feature (layers), "
        "mutual (two students teach each other, without a teacher)",
    )
    temperature: Positive | None = Field(
        None, description="divides logits before the softmax; default: 4 for kl and dkd, 1 for the others"
    )
    alpha: Share | None = Field(
        None,
        description="share of the teacher's loss, the rest is the labels'; default: 0.9 for kl, 1 for js, else 0.5",
    )
    dkd_target: NotNegative = Field(1.0, description="dkd: weight of the right class against all others together")
    dkd_others: NotNegative = Field(8.0, description="dkd: weight of the other classes among themselves")
    layers: dict[str, str] = Field(
        {}, description="feature: layers of the student, each with the teacher's layer that it learns from"
    )
    peer: str | None = Field(None, description="mutual: the model of the second student; default: the same model")
    resize: bool = Field(False, description="resize images for a teacher that was trained at another size")
    unlabeled: str | None = Field(
        None, description="images without labels, written like data.source: a share of each micro-batch comes from them"
    )
    unlabeled_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.5, description="of the samples of each micro-batch, the share that comes from distill.unlabeled"
    )
    servers: Annotated[int, Field(ge=0)] = Field(
        0, description="teacher processes to start on this machine; 0: each trainer runs the teachers itself"
    )
    service: list[str] = Field(
        [], description="teacher processes of `phalanx serve-teacher` that compute the logits, such as [node1:7400]"
    )
    service_key: Path | None = Field(None, description="the file with their key; default: PHALANX_KEY")
    service_timeout_s: Positive = Field(120.0, description="seconds without any teacher process before the run ends")
    precision: Literal["fp32", "bf16"] = Field("fp32", description="of the logits that teacher processes send")
    cache: Path | None = Field(None, description="folder where the teachers' logits are kept, to compute them once")
    cache_epochs: Count | None = Field(
        None, description="views of so many epochs are cached, and repeated after them; default: every epoch's own"
    )
    cache_top_k: Count | None = Field(
        None, description="keep the k largest logits of each sample; the rest share what is left; default: all"
    )
    digests: dict[str, str] = Field({}, description="written by phalanx: SHA-256 of each teacher's weights")

    @model_validator(mode="after")
    def _consistent(self) -> "DistillConfig":
        if self.loss == "mutual" and self.teachers:
            raise ValueError("distill.loss=mutual has two students and no distill.teachers: leave one of them out")
        if self.on and self.loss == "feature" and not self.layers:
            raise ValueError("distill.loss=feature needs distill.layers, such as {layer3: layer3}")
        if self.layers and self.loss != "feature":
            raise ValueError(f"distill.layers are for distill.loss=feature, not distill.loss={self.loss}")
        if self.peer is not None and self.loss != "mutual":
            raise ValueError(f"distill.peer is for distill.loss=mutual, not distill.loss={self.loss}")
        if not self.teachers and (self.servers or self.service or self.cache is not None):
            raise ValueError("distill.servers, distill.service and distill.cache are about distill.teachers: name them")
        if self.cache is None and (self.cache_epochs is not None or self.cache_top_k is not None):
            raise ValueError("distill.cache_epochs and distill.cache_top_k are about distill.cache: name its folder")
        if self.loss in ("feature", "mutual") and (self.servers or self.service or self.cache is not None):
            raise ValueError(
                f"distill.loss={self.loss} needs more than logits: leave distill.servers and distill.cache out"
            )
        if self.loss == "feature" and len(self.teachers) > 1:
            raise ValueError("distill.loss=feature learns from the layers of one of the distill.teachers: name one")
        if self.unlabeled is not None and not self.on:
            raise ValueError("distill.unlabeled has images that only a teacher can label: name distill.teachers")
        return self

    @property
    def on(self) -> bool:
        return bool(self.teachers) or self.loss == "mutual"

    @property
    def served(self) -> bool:
        """Whether teacher processes compute the logits."""
        return bool(self.servers or self.service)

    @property
    def view_epochs(self) -> int | None:
        """How many epochs have views of their own, where views repeat."""
        return self.cache_epochs

    @property
    def names(self) -> list[str]:
        """The teachers as the user names them."""
        return [entry if isinstance(entry, str) else str(entry["name"]) for entry in self.teachers]

    @property
    def weights(self) -> list[float]:
        """The share of each teacher. They sum to 1."""
        given = [1.0 if isinstance(entry, str) else float(entry.get("weight", 1.0)) for entry in self.teachers]
        return [weight / sum(given) for weight in given]

    @property
    def degrees(self) -> float:
        """The temperature."""
        return self.temperature or {"kl": 4.0, "dkd": 4.0}.get(self.loss, 1.0)

    @property
    def share(self) -> float:
        """The share of the teacher's loss."""
        return self.alpha if self.alpha is not None else {"kl": 0.9, "js": 1.0}.get(self.loss, 0.5)
