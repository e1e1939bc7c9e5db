"""tf.train.Example: named features, each a list of bytes, floats or integers. Protobuf parses them.

The schema is built here from the field numbers that TensorFlow publishes: TensorFlow itself is not needed.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Feature = Any  # a protobuf message: bytes_list, float_list or int64_list, each with `value`
KINDS = {"bytes_list": "bytes", "float_list": "floats", "int64_list": "integers", None: "nothing"}


# The types of tf.io.serialize_tensor that images have, by TensorFlow's numbers.
TENSOR_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 4: "<u1", 5: "<i2", 6: "<i1", 9: "<i8", 10: "?", 17: "<u2", 19: "<f2"}


class BadExample(Exception):
    """These bytes are not a tf.train.Example. The message says why."""


class SequenceExample(BadExample):
    """These bytes are a tf.train.SequenceExample: lists of features, as of a video."""


def features_of(data: bytes, start: int, end: int) -> Mapping[str, Feature]:
    """The features of the Example in data[start:end], by name."""
    message, _, decode_error = _messages()
    example = message()
    try:
        example.ParseFromString(memoryview(data)[start:end])
    except decode_error as error:
        raise BadExample(str(error).rpartition(": ")[2]) from error  # without the name of our class
    if example.feature_lists:
        raise SequenceExample("it is a tf.train.SequenceExample")
    features: Mapping[str, Feature] = example.features.feature
    return features


def kind_of(feature: Feature) -> str:
    """What a feature lists: bytes, floats, integers, or nothing."""
    return KINDS[feature.WhichOneof("kind")]


def bytes_of(feature: Feature) -> tuple[bytes, ...]:
    """The values of a feature that lists bytes; none of any other."""
    return tuple(feature.bytes_list.value)


def numbers_of(feature: Feature) -> tuple[float, ...]:
    """The values of a feature that lists integers or floats; none of any other."""
    return (*feature.int64_list.value, *feature.float_list.value)


def array_of(feature: Feature) -> npt.NDArray[np.generic]:
    """The values of a feature that lists integers or floats."""
    integers = feature.int64_list.value
    return np.array(integers, "<i8") if len(integers) else np.array(feature.float_list.value, "<f4")


def tensor_of(data: bytes) -> npt.NDArray[np.generic] | None:
    """The array in the bytes of tf.io.serialize_tensor; None if they are something else."""
    _, message, decode_error = _messages()
    tensor = message()
    try:
        tensor.ParseFromString(data)
    except decode_error:
        return None
    shape = [dim.size for dim in tensor.tensor_shape.dim]
    if tensor.dtype not in TENSOR_TYPES or not shape or min(shape) < 1:
        return None
    kind = np.dtype(TENSOR_TYPES[tensor.dtype])
    if math.prod(shape) * kind.itemsize != len(tensor.tensor_content):
        return None
    return np.frombuffer(tensor.tensor_content, kind).reshape(shape)


@functools.cache
def _messages() -> tuple[type[Any], type[Any], type[Exception]]:
    """The classes of Examples and tensors, and their DecodeError. Made on first use: few jobs read TFRecord."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    one, many, package = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED, "phalanx"
    file = FileDescriptorProto(name="phalanx/example.proto", package=package, syntax="proto3")
    lists = {"BytesList": Field.TYPE_BYTES, "FloatList": Field.TYPE_FLOAT, "Int64List": Field.TYPE_INT64}
    for name, kind in lists.items():
        file.message_type.add(name=name).field.add(name="value", number=1, label=many, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(lists, start=1):
        field = feature.field.add(name=name.replace("List", "_list").lower(), number=number, label=one, oneof_index=0)
        field.type, field.type_name = Field.TYPE_MESSAGE, f".{package}.{name}"
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=one, type=Field.TYPE_STRING)
    entry.field.add(name="value", number=2, label=one, type=Field.TYPE_MESSAGE, type_name=f".{package}.Feature")
    features.field.add(
        name="feature", number=1, label=many, type=Field.TYPE_MESSAGE, type_name=f".{package}.Features.FeatureEntry"
    )
    example = file.message_type.add(name="Example")
    example.field.add(name="features", number=1, label=one, type=Field.TYPE_MESSAGE, type_name=f".{package}.Features")
    example.field.add(name="feature_lists", number=2, label=one, type=Field.TYPE_BYTES)  # of a SequenceExample
    tensor = file.message_type.add(name="Tensor")
    shape = tensor.nested_type.add(name="Shape")
    shape.nested_type.add(name="Dim").field.add(name="size", number=1, label=one, type=Field.TYPE_INT64)
    shape.field.add(name="dim", number=2, label=many, type=Field.TYPE_MESSAGE, type_name=f".{package}.Tensor.Shape.Dim")
    tensor.field.add(name="dtype", number=1, label=one, type=Field.TYPE_INT32)
    tensor.field.add(
        name="tensor_shape", number=2, label=one, type=Field.TYPE_MESSAGE, type_name=f".{package}.Tensor.Shape"
    )
    tensor.field.add(name="tensor_content", number=4, label=one, type=Field.TYPE_BYTES)
    pool = DescriptorPool()  # one of our own: TensorFlow, in the same process, has the default one
    pool.Add(file)
    made = (GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in ("Example", "Tensor"))
    return (*made, DecodeError)
