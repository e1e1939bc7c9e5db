"""Every setting of a run, with its type, default and meaning. The only home of defaults."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from phalanx.config.adversarial_schema import AdversarialConfig as AdversarialConfig
from phalanx.config.adversarial_schema import DenoiseConfig as DenoiseConfig
from phalanx.config.code import CodeEntry
from phalanx.config.data_schema import DataConfig as DataConfig
from phalanx.config.data_schema import SyntheticConfig as SyntheticConfig
from phalanx.config.distill_schema import DistillConfig as DistillConfig
from phalanx.config.durations import Duration
from phalanx.config.section import Section
from phalanx.config.value_types import Count, NotNegative, OwnCode, Positive, Share
from phalanx.migrate.model_names import translate_name


class ModelConfig(Section):
    name: str = Field("cifar_resnet20", description="a name that `phalanx models` lists, or your own: nets.py:TinyNet")
    pretrained: bool = Field(False, description="start from timm's published weights (needs the network)")
    initializer: Literal["default", "kaiming", "xavier", "orthogonal", "truncated-normal"] = Field(
        "default", description="how convolution and linear weights start; default leaves it to the model"
    )
    zero_init_last: bool = Field(True, description="last batch-norm gamma of each residual block starts at 0")
    drop: Share | None = Field(None, description="dropout rate before the classifier")
    drop_path: Share | None = Field(None, description="stochastic depth rate")
    new_head: bool = Field(False, description="with --init-from: classes that the saved classifier lacks start anew")
    freeze: list[str] = Field(
        [], description="parameters that stay as they are: names or patterns such as [layer1, '*.bn1.*']"
    )
    denoise: DenoiseConfig = DenoiseConfig()
    options: dict[str, Any] = Field({}, description="further keyword arguments of the model's constructor")

    @model_validator(mode="before")
    @classmethod
    def _our_name(cls, given: Any) -> Any:
        """Other systems' names of networks become ours, here and nowhere else."""
        return translate_name(given) if isinstance(given, dict) else given


Flip = Share | Literal["alternate"]


class AugmentConfig(Section):
    crop: Literal["none", "pad", "random-resized"] = "none"
    pad: Count = Field(4, description="pixels of padding for crop: pad")
    pad_mode: Literal["zero", "reflect"] = Field("zero", description="what is seen outside of the image")
    scale: tuple[Positive, Positive] = Field((0.08, 1.0), description="area range of the random-resized crop")
    ratio: tuple[Positive, Positive] = Field((0.75, 4 / 3), description="aspect range of the random-resized crop")
    flip: Flip = Field(
        0.0, description="probability of a horizontal flip; alternate: every second epoch, half of the images first"
    )
    rotate: Annotated[float, Field(ge=0, le=180)] = Field(
        0.0, description="degrees: turned by up to so many either way, after the crop; pad_mode fills the corners"
    )
    brightness: NotNegative = 0.0
    contrast: NotNegative = 0.0
    saturation: NotNegative = 0.0
    hue: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    policy: Literal["none", "randaugment", "trivialaugment"] = "none"
    policy_ops: Count = Field(2, description="RandAugment: operations per image")
    policy_magnitude: Annotated[int, Field(ge=0, le=30)] = Field(9, description="RandAugment: strength, of 30")
    erase: Share = Field(0.0, description="probability of random erasing")
    mixup: NotNegative = Field(0.0, description="alpha of mixup's Beta distribution; 0 is off")
    cutmix: NotNegative = Field(0.0, description="alpha of cutmix's Beta distribution; 0 is off")
    mix_probability: Share = Field(1.0, description="share of the micro-batches that mixup or cutmix change")
    mix_switch: Share = Field(0.5, description="where both are on: share of the mixed micro-batches that get cutmix")
    mix_until: Duration | None = Field(
        None, description="mixup and cutmix are off from here on, such as 80%; default: they stay on"
    )
    transform: str | None = Field(
        None, description="your own function, file.py:name: (uint8 image, generator) → image; after crop and colours"
    )
    options: dict[str, Any] = Field({}, description="keyword arguments of your transform")


class LossConfig(Section):
    name: Literal["auto", "cross_entropy", "bce"] | OwnCode = Field(
        "auto",
        description="cross_entropy, bce (a yes or no for each class), or your own: losses.py:focal, called with logits "
        "and labels; auto: cross_entropy, and bce with data.multi_label",
    )
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    class_weights: list[NotNegative] | Literal["balanced"] | None = Field(
        None,
        description="a weight for each class; balanced: inverse to its number of training samples, 1 on average; with "
        "bce a weight of its positives, balanced: negatives over positives",
    )
    options: dict[str, Any] = Field({}, description="further keyword arguments of your own loss")


class SwaConfig(Section):
    start: Duration | None = Field(
        None, description="from here on weights are averaged equally, and the average is evaluated and kept: 75%"
    )
    every: Duration = Field(Duration(1, "ep"), description="how often weights are taken into the average")
    lr: Positive | None = Field(
        None, description="the learning rate from `start` on, constant, for optim.lr_per samples; default: the schedule"
    )


class OptimConfig(Section):
    name: str = Field(
        "sgd",
        description="a name from torch or timm: sgd, adamw, lars, lamb, lion, muon-sgd …; or your own: optims.py:MySGD",
    )
    lr: Positive = 0.1
    lr_per: Count | None = Field(None, description="linear scaling rule: `lr` is for this many samples a step")
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    nesterov: bool = True
    weight_decay: NotNegative = 5e-4
    decay_norm_and_bias: bool = Field(True, description="whether weight decay also applies to BN and biases")
    rates: dict[str, Positive] = Field(
        {},
        description="factors of the learning rate by parameter name or pattern: {layer1: 0.1}; the last match counts",
    )
    layer_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="fine-tuning: factor of the rate from each block to the one before it, such as 0.75"
    )
    accumulate: Count = Field(1, description="micro-batches per step; batch_size is of one micro-batch")
    clip_norm: Positive | None = Field(None, description="largest global gradient norm")
    ema: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="decay of the exponential moving average of weights that is evaluated and kept"
    )
    swa: SwaConfig = SwaConfig()
    options: dict[str, Any] = Field({}, description="further keyword arguments of the optimizer")

    @model_validator(mode="after")
    def _one_average(self) -> "OptimConfig":
        if self.ema is not None and self.swa.start is not None:
            raise ValueError("optim.ema does not go together with optim.swa.start: one average is evaluated and kept")
        return self


OnePart = Annotated[str, Field(pattern=r"^(one-worker|one-of-[1-9]\d*)$")]


class ScheduleConfig(Section):
    kind: Literal["constant", "step", "cosine", "polynomial", "one-cycle"] | OwnCode = Field(
        "cosine",
        description="constant, step, cosine, polynomial, one-cycle; or your own: schedules.py:rate, "
        "called with step, total steps and peak rate",
    )
    warmup: Duration = Duration(0, "ep")
    warmup_kind: Literal["linear", "power", "sqrt"] = "linear"
    warmup_start: Share | OnePart = Field(
        0.0,
        description="share of the rate at which warm-up starts; one-worker: the rate of one micro-batch, "
        "by the linear scaling rule; one-of-32: of one of 32 in a step",
    )
    milestones: list[Duration] = Field([], description="step: where the rate is multiplied by `factor`")
    every: Duration | None = Field(None, description="step: multiply by `factor` every so often, instead")
    factor: Positive = 0.1
    power: Positive = Field(2.0, description="exponent of polynomial decay and of power warm-up")
    floor: Share = Field(0.0, description="share of the rate at which decay ends")

    @model_validator(mode="after")
    def _step_needs_places(self) -> "ScheduleConfig":
        if self.kind == "step" and not self.milestones and self.every is None:
            raise ValueError("schedule.kind=step needs schedule.milestones (such as [30ep, 60ep]) or schedule.every")
        return self

    def start_share(self, micro_batches: int) -> float:
        """The share of the rate at which warm-up starts, in a run whose steps have so many micro-batches.

        By the linear scaling rule, a micro-batch alone would have its part of the rate. On one worker each, that is a
        worker's rate; accumulated ones count as workers, so that the same steps have the same rates wherever they run.
        """
        if isinstance(self.warmup_start, float):
            return self.warmup_start
        return 1 / (micro_batches if self.warmup_start == "one-worker" else int(self.warmup_start.rpartition("-")[2]))


class ProfileConfig(Section):
    """Steps whose time is taken apart, by layer and by kind of work. `phalanx profile` sets these."""

    steps: Annotated[int, Field(ge=0)] = Field(0, description="steps to profile; 0 is off")
    start: Annotated[int, Field(ge=0)] = Field(8, description="steps before them, which do not count")
    alone: bool = Field(False, description="the run ends after them, without evaluation or checkpoint")


class TrainConfig(Section):
    length: Duration = Duration(10, "ep")
    batch_size: Count = Field(128, description="samples in one micro-batch of one worker")
    global_batch_size: Count | None = Field(None, description="samples of a step over all workers, instead")
    micro_batches: Count | None = Field(
        None, description="parts of a step over all workers; default: optim.accumulate for each worker"
    )
    fit_memory: bool = Field(
        False,
        description="cut steps into more and smaller micro-batches where theirs would not fit into memory; steps keep "
        "their samples",
    )
    patience: Duration | None = Field(
        None, description="early stopping: training ends when validation has not been better for so long, such as 10ep"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    log_every: Count = Field(50, description="steps between log lines and step events")
    log_dir: str | None = Field(
        None, description="folder for what each process prints, ROLE-RANK.log; default: logs/ in the run's folder"
    )
    monitor: Annotated[int, Field(ge=0)] = Field(0, description="steps between norm events; 0 is off")
    sizes: list[tuple[Count, Duration]] = Field(
        [], description="smaller images at first: pixels of a side, and until when: [[16, 2ep], [24, 5ep]]"
    )
    profile: ProfileConfig = ProfileConfig()
    curves: bool = Field(True, description="whether curves.png and curves.svg are drawn when the run ends, in a second")


def _switch(value: Any) -> Any:
    """YAML reads `on` and `off` as truth values."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


class ExchangeConfig(Section):
    method: Literal["local", "collective", "pserver"] = Field("local", description="how workers share their updates")
    workers: Count = Field(1, description="trainers; each takes its share of every step's samples")
    servers: Count = Field(1, description="pserver: processes that hold the parameters")
    mode: str = Field("sync", description="pserver: sync, async, or ssp:S (nobody is more than S steps ahead)")
    damping: bool = Field(False, description="pserver async: divide the rate by 1 + staleness")
    compress: str = Field("none", description="none, fp16, bf16, 2bit, 2bit:T, 1bit, topk:R or powersgd:R")
    compress_pull: Literal["none", "fp16", "bf16"] = Field(
        "none", description="pserver: how parameters come back; the servers keep float32"
    )
    sync_bn: bool = Field(False, description="batch-norm statistics over all workers instead of each its own")
    timeout_s: Positive = Field(
        300.0, description="how long to wait for workers and servers to come, and for an answer"
    )
    encrypt: Annotated[Literal["auto", "on", "off"], BeforeValidator(_switch)] = Field(
        "auto",
        description="large messages of parameter and data servers: always authenticated; encrypted too (on), or beyond "
        "a host if its CPU has AES (auto)",
    )
    silence_s: Positive = Field(
        30.0, description="how long a worker or server may give no sign of life; a step that takes long is none"
    )
    max_restarts: Annotated[int, Field(ge=0)] | None = Field(
        None, description="how often lost workers are started anew; default: never, in async and ssp three times"
    )
    min_workers: Count | None = Field(
        None, description="go on with as few workers where no restarts are left; default: end the job"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "ExchangeConfig":
        if self.method == "local" and self.workers > 1:
            raise ValueError("exchange.method=local has one worker; use collective or pserver for more")
        if not re.fullmatch(r"sync|async|ssp:\d+", self.mode):
            raise ValueError(f"exchange.mode {self.mode!r} is none of sync, async, ssp:S (such as ssp:2)")
        if self.min_workers is not None and self.min_workers > self.workers:
            raise ValueError(f"exchange.min_workers={self.min_workers} is more than exchange.workers={self.workers}")
        return self


class EvalConfig(Section):
    every: Duration = Duration(1, "ep")
    evaluator: bool = Field(False, description="a process of its own evaluates each checkpoint while training goes on")
    batch_size: Count | None = Field(None, description="default: the training batch size")
    mirror: bool = Field(False, description="average the answers for each image and for its mirror image")
    shift: Annotated[int, Field(ge=0)] = Field(
        0, description="average also over the image moved by so many pixels, up left and down right"
    )
    top_k: Annotated[int, Field(ge=0)] = Field(
        5, description="k of the second accuracy, less than the number of classes; 0 or 1: top-1 alone is reported"
    )
    metrics: list[CodeEntry] = Field(
        [], description="your own metrics: [file.py:name], or [{name: file.py:Name, options: {...}}]"
    )

    def k(self, num_classes: int) -> int:
        """The k that is counted; 1 where top-1 alone is reported. Among all classes, the right one is always."""
        return max(1, min(self.top_k, num_classes - 1))


class CheckpointConfig(Section):
    every: Duration = Duration(1, "ep")
    keep_last: Count = 2
    keep_best: bool = True


FastPath = Literal["auto", "native", "products", "off"]


class MachineConfig(Section):
    """What is `auto` and changes numbers is settled when a job starts, and written into the run's config.yaml."""

    device: str = Field("auto", description="auto, cpu, cuda, cuda:1, mps")
    gpus: list[Annotated[int, Field(ge=0)]] | None = Field(
        None, min_length=1, description="numbers of the GPUs to use, one worker for each, such as [0, 1, 2, 3]"
    )
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="auto: bf16 where all workers compute it natively and it is measured faster, fp32 otherwise"
    )
    channels_last: bool | Literal["auto"] = "auto"
    threads: Count | Literal["auto"] = Field(
        "auto", description="auto: one for each core and worker; 1 for small steps, where more gain little"
    )
    allocator: Literal["auto", "keep", "system"] = Field(
        "auto", description="keep: freed memory stays with the process, so no page is faulted in twice"
    )
    compile: bool | Literal["auto"] = Field("auto", description="torch.compile the model")
    fast_path: Annotated[FastPath, BeforeValidator(_switch)] = Field(
        "auto",
        description="on a CPU; native: compiled code (Winograd convolutions, norms together with what follows); "
        "products: convolution gradients as matrix products, without compiled code; auto: what all workers have",
    )
    deterministic: bool | Literal["auto"] = Field("auto", description="refuse kernels whose result may vary")

    @model_validator(mode="after")
    def _consistent(self) -> "MachineConfig":
        if self.gpus is not None:
            if len(set(self.gpus)) < len(self.gpus):
                raise ValueError(f"machine.gpus={self.gpus} names a GPU twice: one worker uses one")
            if self.device not in ("auto", "cuda"):
                raise ValueError(f"machine.gpus={self.gpus} does not go together with machine.device={self.device}")
        return self


Logger = Literal["tensorboard", "wandb", "mlflow", "trackio", "csv"]


class LogConfig(Section):
    """Where a run is reported beside its own folder. Nothing here can stop or slow training."""

    to: list[Logger] = Field([], description="other places for a run's numbers: [tensorboard, wandb, mlflow, ...]")
    project: str = Field(
        "phalanx", min_length=1, description="the project (W&B, Trackio) or experiment (MLflow) that the run is put in"
    )
    notify: list[str] = Field(
        [],
        description="at the end, a failure and a new best: a command with {event}, {run}, {step}, {text}; or an http "
        "address that gets them as JSON",
    )


class CodeConfig(Section):
    """The user's own code that a run uses. Filled in when a run starts; the files are in the run's folder."""

    files: dict[str, str] = Field({}, description="written by phalanx: SHA-256 of each file of your own code")
    packages: dict[str, str] = Field({}, description="written by phalanx: SHA-256 of each module of an own package")
    origins: dict[str, str] = Field({}, description="written by phalanx: where each file was when the run started")


class RunConfig(Section):
    """A whole run. `phalanx recipes NAME` prints one resolved, with the origin of each value."""

    name: str = Field("run", description="names the run's folder")
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    augment: AugmentConfig = AugmentConfig()
    loss: LossConfig = LossConfig()
    adversarial: AdversarialConfig = AdversarialConfig()
    distill: DistillConfig = DistillConfig()
    optim: OptimConfig = OptimConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    exchange: ExchangeConfig = ExchangeConfig()
    machine: MachineConfig = MachineConfig()
    log: LogConfig = LogConfig()
    callbacks: list[CodeEntry] = Field(
        [], description="your own callbacks: [file.py:Name], or [{name: file.py:Name, options: {...}}]"
    )
    code: CodeConfig = CodeConfig()

    @model_validator(mode="after")
    def _consistent(self) -> "RunConfig":
        gpus, workers = self.machine.gpus, self.exchange.workers
        if gpus is not None and workers % len(gpus):  # on several hosts, each uses all of the list
            raise ValueError(f"exchange.workers={workers} contradicts machine.gpus={gpus}: one worker for each")
        if self.optim.swa.start is not None and self.exchange.mode != "sync":
            raise ValueError(
                f"optim.swa.start does not go together with exchange.mode={self.exchange.mode}: workers that are at "
                "different steps have no common weights to average; optim.ema or exchange.mode=sync"
            )
        if self.data.multi_label and self.loss.name == "cross_entropy":
            raise ValueError(
                "loss.name=cross_entropy is for one label a sample, and data.multi_label=true has several: "
                "leave loss.name out (bce)"
            )
        if self.data.multi_label and self.adversarial.on:
            raise ValueError(
                "adversarial.attack is for one label a sample, and data.multi_label=true has several: leave one out"
            )
        if self.adversarial.has_passes and self.adversarial.batch_norm == "train" and self.exchange.sync_bn:
            raise ValueError(
                "adversarial.batch_norm=train uses the statistics of a micro-batch, and exchange.sync_bn=true those of "
                "all workers, which do not attack in step: use adversarial.batch_norm=eval"
            )
        if self.distill.loss == "mutual" and self.exchange.sync_bn:
            raise ValueError(
                "distill.loss=mutual does not go together with exchange.sync_bn=true: a worker without samples in a "
                "step would keep the others waiting in the second student; leave one out"
            )
        if self.data.multi_label and self.distill.on:
            raise ValueError(
                "distillation compares answers of one label a sample, and data.multi_label=true has several: leave "
                "distill.teachers out"
            )
        if self.adversarial.on and self.distill.on:
            raise ValueError(
                "adversarial.attack and distill do not go together: a teacher is asked for the images as they were "
                "before the attack; leave one out"
            )
        return self

    @property
    def micro_batches(self) -> int:
        """The parts of a step over all workers."""
        return self.train.micro_batches or self.exchange.workers * self.optim.accumulate
