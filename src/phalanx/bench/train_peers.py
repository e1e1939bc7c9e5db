"""Training steps of other frameworks, each an endless iterator over steps on one batch, which turns.py measures.

It runs in whichever environment a peer is installed in, so it imports nothing of Phalanx, except for models that only
Phalanx has. A job has `model`, `size`, `batch`, `classes`, `threads`, and `precision` for those that have a choice.
All train with the same optimizer, SGD with Nesterov momentum and weight decay, on images that are in memory.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

PeerJob = dict[str, Any]
RATE, MOMENTUM, DECAY = 0.01, 0.9, 5e-4
# ResNets whose blocks stride in their 3×3 convolution: width of the blocks' outputs, and blocks of each stage
RESNETS = {
    "resnet18": (1, (2, 2, 2, 2)),
    "resnet34": (1, (3, 4, 6, 3)),
    "resnet50": (4, (3, 4, 6, 3)),
    "resnet101": (4, (3, 4, 23, 3)),
    "resnet152": (4, (3, 8, 36, 3)),
}
WIDTHS = (64, 128, 256, 512)


class Steps:
    """Endless steps. Each returns its number of images."""

    def __init__(self, step: Callable[[], object], batch: int, *, parameters: int, precision: str) -> None:
        self._step, self._batch = step, batch
        self.about = {"parameters": parameters, "precision": precision}

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        self._step()
        return self._batch


def pytorch(job: PeerJob) -> Steps:
    """As in most scripts."""
    return _torch_loop(job, "fp32", tuned=False)


def pytorch_tuned(job: PeerJob) -> Steps:
    """bf16 autocast, channels_last, torch.compile, fused SGD."""
    return _torch_loop(job, "bf16", tuned=True)


def pytorch_tuned_fp32(job: PeerJob) -> Steps:
    """The same without bf16, which many CPUs do not have."""
    return _torch_loop(job, "fp32", tuned=True)


def _torch_loop(job: PeerJob, precision: str, *, tuned: bool) -> Steps:
    import torch
    import torch.nn.functional as F

    torch.set_num_threads(job["threads"])
    layout = torch.channels_last if tuned else torch.contiguous_format
    model = _torch_model(job).to(memory_format=layout).train()
    images, labels = _torch_batch(job, layout)
    optimizer = torch.optim.SGD(
        model.parameters(), RATE, MOMENTUM, weight_decay=DECAY, nesterov=True, fused=True if tuned else None
    )
    forward = torch.compile(model) if tuned else model

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()

    return Steps(step, job["batch"], parameters=_torch_count(model), precision=precision)


def _torch_model(job: PeerJob) -> Any:
    """The model that Phalanx trains; timm's if Phalanx is not installed."""
    try:
        from phalanx.config.schema import ModelConfig
        from phalanx.models.build import build_model
    except ImportError:
        import timm

        return timm.create_model(job["model"], num_classes=job["classes"])
    config = ModelConfig(name=job["model"])
    return build_model(config, num_classes=job["classes"], channels=3, image_size=job["size"])


def _torch_batch(job: PeerJob, layout: Any) -> Any:
    import torch

    images = torch.randn(job["batch"], 3, job["size"], job["size"]).contiguous(memory_format=layout)
    return images, torch.randint(job["classes"], (job["batch"],))


def _torch_count(model: Any) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def timm_step(job: PeerJob) -> Steps:
    """What timm's training script does in a step, with --channels-last, and with --amp where that is bf16."""
    import timm
    import torch
    from timm.loss.cross_entropy import LabelSmoothingCrossEntropy
    from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]
    from timm.utils.metrics import AverageMeter

    torch.set_num_threads(job["threads"])
    sized = {"img_size": job["size"]} if "vit" in job["model"] else {}
    model = timm.create_model(job["model"], num_classes=job["classes"], **sized)
    model.to(memory_format=torch.channels_last).train()
    images, labels = _torch_batch(job, torch.contiguous_format)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=RATE, weight_decay=DECAY, momentum=MOMENTUM)
    criterion, losses = LabelSmoothingCrossEntropy(smoothing=0.1), AverageMeter()
    optimizer.zero_grad()

    def step() -> None:
        given = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=job["precision"] == "bf16"):
            loss = criterion(model(given), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.update(loss.item(), len(given))

    return Steps(step, job["batch"], parameters=_torch_count(model), precision=job["precision"])


def tensorflow(job: PeerJob) -> Steps:
    """Keras's own training step."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import keras
    import numpy as np
    import tensorflow as tf

    blocks = _resnet(job)
    tf.config.threading.set_intra_op_parallelism_threads(job["threads"])
    if job["precision"] == "bf16":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    model = _keras_resnet(keras, job, *blocks)
    model.compile(
        optimizer=keras.optimizers.SGD(RATE, MOMENTUM, nesterov=True, weight_decay=DECAY),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    images = tf.constant(np.random.randn(job["batch"], job["size"], job["size"], 3).astype("float32"))
    labels = tf.constant(np.random.randint(0, job["classes"], job["batch"]))
    count = sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)
    return Steps(
        lambda: model.train_on_batch(images, labels), job["batch"], parameters=count, precision=job["precision"]
    )


def _resnet(job: PeerJob) -> tuple[int, tuple[int, ...]]:
    if job["model"] not in RESNETS:
        raise ValueError(f"only {', '.join(RESNETS)} are written down for it, not {job['model']}")
    return RESNETS[job["model"]]


def _keras_resnet(keras: Any, job: PeerJob, widen: int, depths: tuple[int, ...]) -> Any:
    layers = keras.layers

    def conv(x: Any, width: int, kernel: int, stride: int = 1, relu: bool = True) -> Any:
        x = layers.Conv2D(width, kernel, stride, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
        return layers.ReLU()(x) if relu else x

    inputs = keras.Input((job["size"], job["size"], 3))
    x = layers.MaxPooling2D(3, 2, padding="same")(conv(inputs, 64, 7, 2))
    for stage, (width, depth) in enumerate(zip(WIDTHS, depths, strict=True)):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            same = stride == 1 and x.shape[-1] == width * widen
            short = x if same else conv(x, width * widen, 1, stride, relu=False)
            if widen == 1:
                y = conv(conv(x, width, 3, stride), width, 3, relu=False)
            else:
                y = conv(conv(conv(x, width, 1), width, 3, stride), width * widen, 1, relu=False)
            x = layers.ReLU()(layers.Add()([y, short]))
    x = layers.Dense(job["classes"], dtype="float32")(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, x)


def paddle(job: PeerJob) -> Steps:
    """Paddle's dynamic graph and its own ResNet, with oneDNN."""
    os.environ |= {"FLAGS_use_mkldnn": "1", "OMP_NUM_THREADS": str(job["threads"])}
    import paddle as pd
    from paddle.vision import models

    _resnet(job)
    pd.set_device("cpu")
    model = getattr(models, job["model"])(num_classes=job["classes"])
    model.train()
    images = pd.randn([job["batch"], 3, job["size"], job["size"]])
    labels = pd.randint(0, job["classes"], [job["batch"]])
    optimizer = pd.optimizer.Momentum(
        RATE, MOMENTUM, parameters=model.parameters(), use_nesterov=True, weight_decay=DECAY
    )

    def step() -> None:
        reduced = job["precision"] == "bf16"
        with pd.amp.auto_cast(dtype="bfloat16", level="O1") if reduced else contextlib.nullcontext():
            loss = pd.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        loss.item()

    count = sum(int(parameter.size) for parameter in model.parameters() if not parameter.stop_gradient)
    return Steps(step, job["batch"], parameters=count, precision=job["precision"])


def mxnet(job: PeerJob) -> Steps:
    """Gluon, hybridized with static memory; fp32, since it trains in nothing else on a CPU."""
    os.environ |= {"OMP_NUM_THREADS": str(job["threads"])}
    import mxnet as mx

    net = _gluon_resnet(mx, job, *_resnet(job))
    net.initialize(mx.init.Xavier(magnitude=2))
    net.hybridize(static_alloc=True, static_shape=True)
    images = mx.nd.random.normal(shape=(job["batch"], 3, job["size"], job["size"]))
    labels = mx.nd.floor(mx.nd.random.uniform(0, job["classes"], shape=(job["batch"],)))
    criterion = mx.gluon.loss.SoftmaxCrossEntropyLoss()
    criterion.hybridize(static_alloc=True, static_shape=True)
    net(images).wait_to_read()  # Gluon knows its shapes, and so its parameters, afterwards
    options = {"learning_rate": RATE, "momentum": MOMENTUM, "wd": DECAY}
    trainer = mx.gluon.Trainer(net.collect_params(), "nag", options)

    def step() -> None:
        with mx.autograd.record():
            loss = criterion(net(images), labels)
        loss.backward()
        trainer.step(job["batch"])
        loss.mean().asscalar()
        mx.nd.waitall()  # the update runs in the background

    count = sum(p.data().size for p in net.collect_params().values() if p.grad_req != "null")
    return Steps(step, job["batch"], parameters=count, precision="fp32")


def _gluon_resnet(mx: Any, job: PeerJob, widen: int, depths: tuple[int, ...]) -> Any:
    nn = mx.gluon.nn

    def conv(width: int, kernel: int, stride: int = 1, relu: bool = True) -> list[Any]:
        layers = [nn.Conv2D(width, kernel, stride, kernel // 2, use_bias=False), nn.BatchNorm(epsilon=1e-5)]
        return [*layers, nn.Activation("relu")] if relu else layers

    def chain(*parts: list[Any]) -> Any:
        sequence = nn.HybridSequential()
        sequence.add(*(layer for part in parts for layer in part))
        return sequence

    class Block(mx.gluon.nn.HybridBlock):  # type: ignore[misc]
        def __init__(self, width: int, stride: int, project: bool) -> None:
            super().__init__()
            if widen == 1:
                self.body = chain(conv(width, 3, stride), conv(width, 3, relu=False))
            else:
                self.body = chain(conv(width, 1), conv(width, 3, stride), conv(width * widen, 1, relu=False))
            self.short = chain(conv(width * widen, 1, stride, relu=False)) if project else None

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            return F.relu(self.body(x) + (x if self.short is None else self.short(x)))

    blocks = [
        Block(width, 2 if stage and not block else 1, project=not block and (stage > 0 or widen > 1))
        for stage, (width, depth) in enumerate(zip(WIDTHS, depths, strict=True))
        for block in range(depth)
    ]
    return chain(
        conv(64, 7, 2), [nn.MaxPool2D(3, 2, 1)], blocks, [nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(job["classes"])]
    )


# What each is called, what does it, and what must be importable for it.
PEERS: dict[str, tuple[Callable[[PeerJob], Steps], tuple[str, ...]]] = {
    "pytorch": (pytorch, ("torch",)),
    "pytorch-tuned": (pytorch_tuned, ("torch",)),
    "pytorch-tuned-fp32": (pytorch_tuned_fp32, ("torch",)),
    "timm": (timm_step, ("timm",)),
    "tensorflow": (tensorflow, ("tensorflow",)),
    "paddle": (paddle, ("paddle",)),
    "mxnet": (mxnet, ("mxnet",)),
}
