"""tf.train.Example: named features, each a list of bytes, floats or integers. Protobuf parses them.

The schema is built here from the field numbers that TensorFlow publishes: TensorFlow itself is not needed.
"""

import functools
from collections.abc import Mapping
from typing import Any

Feature = Any  # a protobuf message: bytes_list, float_list or int64_list, each with `value`
KINDS = {"bytes_list": "bytes", "float_list": "floats", "int64_list": "integers", None: "nothing"}


class BadExample(Exception):
    """These bytes are not a tf.train.Example. The message says why."""


def features_of(data: bytes, start: int, end: int) -> Mapping[str, Feature]:
    """The features of the Example in data[start:end], by name."""
    message, decode_error = _message()
    example = message()
    try:
        example.ParseFromString(memoryview(data)[start:end])
    except decode_error as error:
        raise BadExample(str(error).rpartition(": ")[2]) from error  # without the name of our class
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


@functools.cache
def _message() -> tuple[type[Any], type[Exception]]:
    """The class of Examples and its DecodeError. Imported on first use, because few jobs read TFRecord."""
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
    pool = DescriptorPool()  # one of our own: TensorFlow, in the same process, has the default one
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(f"{package}.Example")), DecodeError
