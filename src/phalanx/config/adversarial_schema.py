"""The settings of `adversarial`: attacks on images, and training on what they make."""

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from phalanx.config.section import Section
from phalanx.config.value_types import Count, NotNegative, Positive, Share


def _fraction(value: Any) -> Any:
    """`8/255` as the number that it is; pydantic judges everything else."""
    if not isinstance(value, str) or "/" not in value:
        return value
    try:
        return float(Fraction(value.replace(" ", "")))
    except (ValueError, ZeroDivisionError) as error:
        raise ValueError("it is neither a number nor a fraction such as 8/255") from error


PixelUnits = Annotated[Positive, BeforeValidator(_fraction)]  # of a pixel whose range is 0 to 1


class AttackConfig(Section):
    """An attack: how far from an image it looks, and how."""

    attack: Literal["none", "pgd", "fgsm", "free"] = Field(
        "none",
        description="pgd (several steps up the loss), fgsm (one step), or free (training alone: each batch several "
        "times, attacked by the update's own gradients); none: train on images as they are",
    )
    norm: Literal["linf", "l2"] = Field("linf", description="what eps and step measure: each pixel, or the whole image")
    eps: PixelUnits = Field(
        8 / 255, description="largest change, where pixels are 0 to 1; a number or a fraction such as 8/255"
    )
    step: PixelUnits | None = Field(
        None,
        description="change of one step, in the same unit; default: eps/4; fgsm: 1.25 eps, without a random start eps; "
        "free: eps",
    )
    steps: Count | None = Field(None, description="of pgd; default: 7")
    random_start: bool = Field(True, description="start anywhere within eps of the image; false: at the image")
    targeted: Literal[False, "random"] = Field(
        False, description="random: towards a wrong class, drawn for each sample; false: away from the right one"
    )

    @field_validator("eps", mode="after")
    @classmethod
    def _within_a_pixel(cls, eps: float, info: ValidationInfo) -> float:
        if info.data.get("norm") == "linf" and eps > 1:
            raise ValueError(
                f"eps {eps:g} is more than the whole range of a pixel (0 to 1)"
                + (f"; try {eps:g}/255" if eps <= 255 else "")
            )
        return eps

    @model_validator(mode="after")
    def _one_step(self) -> "AttackConfig":
        if self.attack == "fgsm" and self.steps not in (None, 1):
            raise ValueError(f"adversarial.attack=fgsm has one step, and adversarial.steps={self.steps}: use pgd")
        return self

    @property
    def num_steps(self) -> int:
        return 1 if self.attack in ("fgsm", "free") else self.steps or 7

    @property
    def step_size(self) -> float:
        if self.step is not None:
            return self.step
        if self.attack == "fgsm":
            return 1.25 * self.eps if self.random_start else self.eps
        return self.eps if self.attack == "free" else self.eps / 4


class AdversarialConfig(AttackConfig):
    replays: Annotated[int, Field(ge=2)] | None = Field(
        None, description="free: updates by each batch before the next one; default: 8"
    )
    clean_start: Share = Field(0.0, description="share of samples whose attack starts at the image in spite of that")
    loss: Literal["ce", "trades"] = Field(
        "ce",
        description="ce: the run's loss, of attacked images; trades: of clean images, plus beta times the KL "
        "divergence of the answers to attacked ones",
    )
    beta: NotNegative = Field(6.0, description="trades: weight of robustness against accuracy")
    mix: Share = Field(0.0, description="share of samples that stay clean")
    batch_norm: Literal["train", "eval"] = Field(
        "train",
        description="statistics in the attack's passes: of the micro-batch (train) or the running ones (eval); "
        "these passes never change the running ones",
    )
    guard_every: Annotated[int, Field(ge=0)] = Field(
        100,
        description="fgsm: steps between comparisons with PGD, which end FGSM where it is no attack any more; 0 is off",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "AdversarialConfig":
        if self.attack == "none":
            told = [name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default]
            if told:
                raise ValueError(f"adversarial.{told[0]} has no effect without adversarial.attack: pgd, fgsm or free")
        if self.replays is not None and self.attack != "free":
            raise ValueError(f"adversarial.replays is for adversarial.attack=free, not {self.attack}")
        if self.attack == "free":
            self._refuse_passes()
        if self.loss == "trades":
            if self.targeted:
                raise ValueError(
                    "adversarial.targeted does not go together with adversarial.loss=trades: its attack moves away "
                    "from the model's own answer"
                )
            if self.mix or self.clean_start or not self.random_start:
                raise ValueError(
                    "adversarial.loss=trades has clean images in its loss, and its attack has no gradient at the image "
                    "itself: leave adversarial.mix, adversarial.clean_start and adversarial.random_start out"
                )
        return self

    def _refuse_passes(self) -> None:
        """Refuse what needs passes of the attack alone: free has none."""
        fields = type(self).model_fields
        needing = ("steps", "targeted", "clean_start", "loss", "mix", "batch_norm")
        told = next((name for name in needing if getattr(self, name) != fields[name].default), None)
        if told:
            raise ValueError(
                f"adversarial.{told} does not go together with adversarial.attack=free, whose attack is the gradient "
                "of the update itself: leave it out, or use pgd"
            )

    @property
    def on(self) -> bool:
        return self.attack != "none"

    @property
    def has_passes(self) -> bool:
        """Whether the attack has forward and backward passes of its own."""
        return self.on and self.attack != "free"

    @property
    def updates_per_batch(self) -> int:
        return self.replays or 8 if self.attack == "free" else 1


class DenoiseConfig(Section):
    """Feature denoising (Xie et al. 2019): blocks that start as the identity."""

    after: list[str] = Field([], description="stages of the network that get a block at their end: [layer1, layer2]")
    kind: Literal["softmax", "dot", "mean"] = Field(
        "softmax", description="non-local mean with softmax or dot-product weights; mean: of 3×3 neighbours"
    )
    embed: bool = Field(True, description="softmax and dot: whether weights come from 1×1 convolutions of the features")
