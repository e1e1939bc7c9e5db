"""Other loaders, each an endless iterable of batches, which turns.py measures.

It runs in whichever environment a peer is installed in, so it imports nothing of Phalanx. A job has `root`, which holds
class folders of JPEG files, `size`, `batch`, `threads`, and `scratch`, a folder for files that a peer needs in a form
of its own. All do the same: decode, random-resized crop, flip, batches of uint8 where the peer can.
"""

import io
import itertools
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PeerJob = dict[str, Any]


def files_of(job: PeerJob) -> tuple[list[str], list[int]]:
    """The image files and their labels, in the order of their numbers, which all classes share."""
    found = sorted(Path(job["root"]).glob("*/*"), key=lambda path: path.name)
    classes = sorted({path.parent.name for path in found})
    return [str(path) for path in found], [classes.index(path.parent.name) for path in found]


def torchvision_folder(job: PeerJob) -> Iterator[int]:
    """ImageFolder and DataLoader: Pillow decodes, in worker processes."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [transforms.RandomResizedCrop(job["size"]), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    return _loaded(ImageFolder(job["root"], transforms.Compose(steps)), job)


def torchvision_float(job: PeerJob) -> Iterator[int]:
    """The same with normalised floats, as in most scripts."""
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    steps = [
        transforms.RandomResizedCrop(job["size"]),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
    return _loaded(ImageFolder(job["root"], transforms.Compose(steps)), job)


def torchvision_v2(job: PeerJob) -> Iterator[int]:
    """torchvision's own decoder and transforms on tensors."""
    from torchvision.datasets import ImageFolder
    from torchvision.io import ImageReadMode, decode_image, read_file
    from torchvision.transforms import v2

    steps = v2.Compose([v2.RandomResizedCrop(job["size"], antialias=True), v2.RandomHorizontalFlip()])
    return _loaded(
        ImageFolder(job["root"], steps, loader=lambda path: decode_image(read_file(path), ImageReadMode.RGB)), job
    )


def opencv(job: PeerJob) -> Iterator[int]:
    """OpenCV in a DataLoader."""
    import cv2
    import torch
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    cv2.setNumThreads(0)

    def load(path: str) -> Any:
        image = cv2.cvtColor(cv2.imread(path, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION), cv2.COLOR_BGR2RGB)
        shape = torch.empty((3, *image.shape[:2]), device="meta")
        top, left, tall, wide = transforms.RandomResizedCrop.get_params(shape, [0.08, 1.0], [3 / 4, 4 / 3])
        part = image[top : top + tall, left : left + wide]
        seen = cv2.resize(part, (job["size"], job["size"]), interpolation=cv2.INTER_LINEAR)
        return cv2.flip(seen, 1) if random.random() < 0.5 else seen

    return _loaded(ImageFolder(job["root"], loader=load), job)


def timm_loader(job: PeerJob) -> Iterator[int]:
    """timm's create_dataset and create_loader, as its training script calls them without a GPU."""
    from timm.data.dataset_factory import create_dataset
    from timm.data.loader import create_loader

    dataset = create_dataset("", root=job["root"])
    loader = create_loader(
        dataset,
        input_size=(3, job["size"], job["size"]),
        batch_size=job["batch"],
        is_training=True,
        use_prefetcher=False,
        color_jitter=None,  # type: ignore[arg-type]
        interpolation="bilinear",
        num_workers=job["threads"],
        persistent_workers=True,
        pin_memory=False,
    )
    return (len(images) for _ in itertools.count() for images, _ in loader)


def _loaded(dataset: Any, job: PeerJob) -> Iterator[int]:
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    loader = DataLoader(
        dataset,
        job["batch"],
        shuffle=True,
        num_workers=job["threads"],
        drop_last=True,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    return (len(images) for _ in itertools.count() for images, _ in loader)


def webdataset(job: PeerJob) -> Iterator[int]:
    """WebDataset's tars, two for each worker."""
    import webdataset as wds
    from torchvision import transforms

    files, labels = files_of(job)
    workers = max(1, job["threads"])
    shards = [str(Path(job["scratch"], f"peer-{number}.tar")) for number in range(2 * workers)]
    for number, shard in enumerate(shards):
        with wds.TarWriter(shard) as writer:
            for i in range(number, len(files), len(shards)):
                writer.write({"__key__": f"{i:06}", "jpg": Path(files[i]).read_bytes(), "cls": labels[i]})
    steps = transforms.Compose(
        [transforms.RandomResizedCrop(job["size"]), transforms.RandomHorizontalFlip(), transforms.PILToTensor()]
    )
    dataset = wds.WebDataset(shards, shardshuffle=False).shuffle(256).decode("pil").to_tuple("jpg", "cls")
    dataset = dataset.map_tuple(steps, int).batched(job["batch"], partial=False)
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=job["threads"], persistent_workers=True)
    return (len(images) for _ in itertools.count() for images, _ in loader)


def tf_data(job: PeerJob) -> Iterator[int]:
    """tf.data with decode_and_crop_jpeg: only the crop is decoded, in threads."""
    os.environ |= {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    import tensorflow as tf

    files, labels = files_of(job)
    box = tf.constant([0.0, 0.0, 1.0, 1.0], shape=[1, 1, 4])

    def load(path: Any, label: Any) -> Any:
        data = tf.io.read_file(path)
        shape = tf.io.extract_jpeg_shape(data)
        begin, extent, _ = tf.image.sample_distorted_bounding_box(
            shape, box, min_object_covered=0.0, aspect_ratio_range=(3 / 4, 4 / 3), area_range=(0.08, 1.0)
        )
        window = tf.stack([begin[0], begin[1], extent[0], extent[1]])
        image = tf.image.decode_and_crop_jpeg(data, window, channels=3)
        image = tf.image.random_flip_left_right(tf.image.resize(image, (job["size"], job["size"])))
        return tf.cast(image, tf.uint8), label

    dataset = tf.data.Dataset.from_tensor_slices((files, labels)).shuffle(len(files)).repeat()
    dataset = dataset.map(load, num_parallel_calls=job["threads"]).batch(job["batch"]).prefetch(2)
    options = tf.data.Options()
    options.threading.private_threadpool_size = max(1, job["threads"])
    return (int(images.shape[0]) for images, _ in dataset.with_options(options))


def dali(job: PeerJob) -> Iterator[int]:
    """DALI on the CPU: its decoder crops while decoding."""
    from nvidia.dali import fn, pipeline_def, types

    files, labels = files_of(job)

    @pipeline_def(batch_size=job["batch"], num_threads=max(1, job["threads"]), device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        data, label = fn.readers.file(files=files, labels=labels, random_shuffle=True, name="files")
        images = fn.decoders.image_random_crop(data, device="cpu", output_type=types.RGB)
        images = fn.resize(images, size=[job["size"], job["size"]], interp_type=types.INTERP_LINEAR)
        return fn.flip(images, horizontal=fn.random.coin_flip()), label

    made = pipeline()
    made.build()
    return (len(made.run()[0]) for _ in itertools.count())


def mxnet(job: PeerJob) -> Iterator[int]:
    """MXNet's ImageRecordIter in its uint8 form, on a .rec of the same files."""
    from mxnet import io as mx
    from mxnet import recordio

    place = str(Path(job["scratch"], "peer.rec"))
    writer = recordio.MXRecordIO(place, "w")
    for number, (file, label) in enumerate(zip(*files_of(job), strict=True)):
        writer.write(recordio.pack(recordio.IRHeader(0, label, number, 0), Path(file).read_bytes()))
    writer.close()
    loader = mx.ImageRecordUInt8Iter(
        path_imgrec=place,
        data_shape=(3, job["size"], job["size"]),
        batch_size=job["batch"],
        preprocess_threads=max(1, job["threads"]),
        shuffle=True,
        rand_mirror=True,
        random_resized_crop=True,
        min_random_area=0.08,
        max_random_area=1.0,
        min_aspect_ratio=3 / 4,
        max_aspect_ratio=4 / 3,
    )

    def batches() -> Iterator[int]:
        while True:
            loader.reset()
            for batch in loader:
                batch.data[0].wait_to_read()
                yield len(batch.data[0]) - batch.pad

    return batches()


def ffcv_jpeg(job: PeerJob) -> Iterator[int]:
    """FFCV's own file of the same images, as JPEGs."""
    return _ffcv(job, "jpg")


def ffcv_raw(job: PeerJob) -> Iterator[int]:
    """FFCV's own file of the same images, decoded in advance."""
    return _ffcv(job, "raw")


def _ffcv(job: PeerJob, mode: str) -> Iterator[int]:
    import numpy as np
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.rgb_image import RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, ToTensor
    from ffcv.writer import DatasetWriter
    from PIL import Image

    files, labels = files_of(job)

    class Images:
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, index: int) -> Any:
            # FFCV encodes the images again; at this quality the files keep their size.
            return np.asarray(Image.open(io.BytesIO(Path(files[index]).read_bytes())).convert("RGB")), labels[index]

    place = str(Path(job["scratch"], f"peer-{mode}.beton"))
    fields = {"image": RGBImageField(write_mode=mode, jpeg_quality=92), "label": IntField()}
    DatasetWriter(place, fields, num_workers=max(1, job["threads"])).from_indexed_dataset(Images())
    decoder = RandomResizedCropRGBImageDecoder((job["size"], job["size"]))
    loader = Loader(
        place,
        batch_size=job["batch"],
        num_workers=max(1, job["threads"]),
        order=OrderOption.RANDOM,
        os_cache=True,
        pipelines={"image": [decoder, RandomHorizontalFlip(), ToTensor()]},
    )
    return (len(batch[0]) for _ in itertools.count() for batch in loader)


# What each is called, what does it, and what must be importable for it.
PEERS: dict[str, tuple[Callable[[PeerJob], Iterator[int]], tuple[str, ...]]] = {
    "torchvision": (torchvision_folder, ("torchvision",)),
    "torchvision-float": (torchvision_float, ("torchvision",)),
    "torchvision-v2": (torchvision_v2, ("torchvision",)),
    "timm": (timm_loader, ("timm",)),
    "opencv": (opencv, ("cv2", "torchvision")),
    "webdataset": (webdataset, ("webdataset", "torchvision")),
    "tf.data": (tf_data, ("tensorflow",)),
    "dali": (dali, ("nvidia.dali",)),
    "mxnet": (mxnet, ("mxnet",)),
    "ffcv": (ffcv_jpeg, ("ffcv",)),
    "ffcv-raw": (ffcv_raw, ("ffcv",)),
}
