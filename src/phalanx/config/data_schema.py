"""The settings of `data`: where samples are, how they are read, and what is done about bad ones."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from phalanx.config.section import Section
from phalanx.config.value_types import Count, Expression, NotNegative, Positive, Share


class SyntheticConfig(Section):
    samples: Count = Field(5120, description="images in the training split")
    val_samples: Count = Field(512, description="images in the validation split")
    classes: Annotated[int, Field(ge=2)] = 1000
    size: Count = Field(224, description="height and width of the images")
    channels: Count = 3


class DataConfig(Section):
    source: str = Field(
        "digits",
        description="digits, synthetic, a path, FORMAT:PATH, hf://USER/NAME, or your own dataset: file.py:Name",
    )
    val: str | None = Field(None, description="validation data, written like `source`; default: found beside it")
    val_labels: Path | None = Field(None, description="label list of a flat validation folder")
    class_names: list[str] | Path | None = Field(
        None,
        description="names of classes that are numbers in the data: a list, or a file such as labels.txt or "
        "class_to_idx.json; default: found beside the data",
    )
    class_level: Count | None = Field(
        None,
        description="which folders are the classes: 1 for those in `source` (or in its train and val), 2 for those in "
        "these; default: found",
    )
    root: Path | None = Field(
        None, description="folder that the paths of a list start from; default: the list's own, or where they are found"
    )
    val_share: Share = Field(0.1, description="share held out where the data has no validation part")
    group: Expression | None = Field(
        None,
        description="samples of one group are never divided between training and validation: an expression whose "
        "first (…) finds the group in a sample's name, or folder: the folder below the class",
    )
    group_field: str | None = Field(None, description="the field or column that names a sample's group, instead")
    folds: Annotated[int, Field(ge=2)] | None = Field(
        None, description="cross-validation: so many runs, each validated on another part of the training data"
    )
    fold: Count | None = Field(None, description="train this one of data.folds alone, counted from 1")
    image_size: Count | None = Field(None, description="input height and width; default: what the data suggests")
    channels: Literal[1, 3] | None = Field(None, description="grey (1) or colour (3); default: the data's own")
    crop_share: Annotated[float, Field(gt=0, le=1)] = Field(
        0.875, description="validation: share of the shorter side that the centre crop keeps"
    )
    interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    mean: list[float] | None = Field(None, description="per channel, in 0..1; default: the data's own")
    std: list[Positive] | None = Field(None, description="per channel, in 0..1; default: the data's own")
    sampling: Literal["shuffle", "balanced", "oversample", "repeat-factor"] = Field(
        "shuffle",
        description="balanced: all classes equally often, in an epoch of the same length; oversample: every sample, "
        "and those of rare classes repeated up to the largest; repeat-factor: repeated by the square root of that",
    )
    repeat_threshold: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="repeat-factor: share of the data below which a class is repeated; default: the largest's"
    )
    drop_last: bool = Field(False, description="leave out an epoch's last, smaller batch")
    threads: Annotated[int, Field(ge=0)] | None = Field(
        None, description="threads that decode and augment; default: one per core that this worker has"
    )
    prefetch: Count = Field(3, description="batches made ahead of the step that uses them")
    bad_images: Literal["skip", "stop"] = Field("skip", description="what to do with an image that does not decode")
    bad_images_cap: Share = Field(0.01, description="share of bad images above which a skipping run stops")
    max_pixels: Count = Field(
        178_956_970, description="an image with more is bad, which its header tells; default: as many as Pillow allows"
    )
    max_scans: Count = Field(
        100, description="a JPEG with more is bad: progressive ones have about 10, and each takes time for all pixels"
    )
    service: list[str] = Field([], description="addresses of data servers (HOST:PORT) that make the training batches")
    servers: Annotated[int, Field(ge=0)] = Field(0, description="data servers to start on this machine")
    service_key: Path | None = Field(None, description="file with the data servers' key; default: PHALANX_KEY")
    service_timeout_s: Positive = Field(300.0, description="how long to wait while no data server is there")
    service_fallback: bool = Field(False, description="make batches here while no data server is there")
    quarantine: Path | None = Field(
        None, description="list of samples to leave out, such as `phalanx data verify` writes; a name per line"
    )
    decode: Literal["fast", "exact", "gpu"] = Field(
        "fast",
        description="fast: JPEGs much larger than needed are decoded at 1/2, 1/4 or 1/8; exact: at full size; gpu: at "
        "full size by nvJPEG (rehearsed, not run)",
    )
    exif_orientation: bool = Field(False, description="turn photographs as their EXIF orientation says")
    image_field: str | None = Field(
        None,
        description="where samples have named fields (TFRecord, WebDataset, Hugging Face, CSV): which is the image",
    )
    label_field: str | None = Field(None, description="and which is the label; default: the usual names")
    label_element: Annotated[int, Field(ge=0)] | None = Field(
        None, description="labels of several values (RecordIO, TFRecord, lists): which of them is the class, from 0"
    )
    image_shape: Annotated[list[Count], Field(min_length=2, max_length=3)] | None = Field(
        None, description="raw pixels: height, width and channels, where the data does not say them, as [28,28,1]"
    )
    image_layout: Literal["hwc", "chw"] | None = Field(
        None, description="raw pixels: colours of a pixel together (hwc) or channel by channel (chw); default: usual"
    )
    label_bytes: Annotated[int, Field(ge=1, le=8)] | None = Field(
        None, description="binary files of records: bytes of labels before the pixels; default: by the file's length"
    )
    multi_label: bool = Field(
        False, description="a sample may have several labels or none: trained with BCE, judged by mAP"
    )
    options: dict[str, Any] = Field({}, description="keyword arguments of your own dataset")
    remote_options: dict[str, Any] = Field(
        {}, description="options of fsspec's file system for S3, GCS or http addresses, such as {anon: true}"
    )
    cache_gb: NotNegative | None = Field(
        None, description="images of a remote folder: gigabytes to keep on disk; default: while the disk has room"
    )
    salvage: bool = Field(False, description="use a damaged shard file up to its damage instead of refusing it")
    synthetic: SyntheticConfig = SyntheticConfig()

    @model_validator(mode="after")
    def _folds_and_groups(self) -> "DataConfig":
        if self.decode == "gpu" and self.exif_orientation:
            raise ValueError("data.decode=gpu does not turn photographs: leave it or data.exif_orientation out")
        if self.fold is not None and (self.folds is None or self.fold > self.folds):
            raise ValueError(f"data.fold={self.fold} is none of data.folds={self.folds}")
        if self.group is not None and self.group_field is not None:
            raise ValueError("data.group and data.group_field both say what a group is; leave one out")
        if self.multi_label and self.label_element is not None:
            raise ValueError("data.label_element chooses one of a sample's labels, data.multi_label takes all of them")
        return self
