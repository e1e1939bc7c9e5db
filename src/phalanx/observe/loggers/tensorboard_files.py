"""TensorBoard's event files in RUN/tensorboard, written without TensorBoard: `tensorboard --logdir runs` shows them."""

import os
import platform
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import yaml

from phalanx.observe.loggers.base import LoggedRun
from phalanx.observe.logs.tensorboard_records import (
    FILE_VERSION,
    SESSION_START,
    STRING,
    event_message,
    framed,
    message_class,
)

FOLDER = "tensorboard"


class TensorBoardLogger:
    """Curves as scalars, the configuration as text, and the confusion matrix as an image."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._run: LoggedRun | None = None
        self._step = 0

    def begin(self, run: LoggedRun) -> None:
        self._run = run
        folder = run.folder / FOLDER
        folder.mkdir(exist_ok=True)
        name = f"events.out.tfevents.{int(time.time()):010d}.{platform.node()}.{os.getpid()}.{time.monotonic_ns()}"
        self._file = (folder / name).open("xb", buffering=0)
        self._write(time.time(), 0, file_version=FILE_VERSION)
        text = yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True)
        indented = "".join(f"    {line}\n" for line in text.splitlines())  # Markdown shows it as it is
        event = self._event(time.time(), 0)
        value = event.summary.value.add(tag="config/text_summary")
        value.metadata.plugin_data.plugin_name = "text"
        value.tensor.dtype = STRING
        value.tensor.tensor_shape.dim.add(size=1)
        value.tensor.string_val.append(indented.encode())
        self._append(event)

    def rewind(self, step: int) -> None:
        """TensorBoard leaves out what other files have from the step on at which a session starts."""
        event = self._event(time.time(), step + 1)
        event.session_log.status = SESSION_START
        self._append(event)

    def numbers(self, step: int, time_s: float, values: Mapping[str, float]) -> None:
        self._step = max(self._step, step)
        event = self._event(time_s, step)
        for name, number in values.items():
            event.summary.value.add(tag=name, simple_value=number)
        self._append(event)

    def finish(self, *, failed: bool) -> None:
        picture = self._run.confusion if self._run is not None else None
        if picture is not None:
            self._image("confusion", picture)
        if self._file is not None:
            self._file.close()

    def _image(self, tag: str, path: Path) -> None:
        content = path.read_bytes()
        width, height = struct.unpack_from(">II", content, 16)  # where a PNG has its size
        image = message_class("Image")(height=height, width=width, colorspace=3, encoded_image_string=content)
        event = self._event(time.time(), self._step)
        event.summary.value.add(tag=tag, image=image.SerializeToString())
        self._append(event)

    def _event(self, time_s: float, step: int) -> Any:
        return event_message()[0](wall_time=time_s, step=step)

    def _write(self, time_s: float, step: int, *, file_version: str) -> None:
        event = self._event(time_s, step)
        event.file_version = file_version
        self._append(event)

    def _append(self, event: Any) -> None:
        assert self._file is not None, "begin comes first"
        self._file.write(framed(event.SerializeToString()))
