"""DDP communication hooks: each bucket of gradients is compressed, exchanged and added up while backward goes on.

Gradients arrive already weighted by samples, so every hook leaves the sum over ranks in the bucket and none divides.

A bucket's parameters are compressed one by one. So the result does not depend on how DDP fills its buckets (it fills
them anew after the first step), thresholds and shares follow each layer, and residuals are kept by parameter name.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from phalanx.errors import UserError
from phalanx.exchange.compress.cast import CastCodec, overflow
from phalanx.exchange.compress.codec import Codec
from phalanx.exchange.compress.codecs import make_codec
from phalanx.exchange.compress.residuals import Residuals
from phalanx.exchange.compress.spec import CompressionSpec

Answer = Future[Tensor]
