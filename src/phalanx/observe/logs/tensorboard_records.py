"""What reading and writing TensorBoard's event files share: the frame of a record, and the schema of an Event.

The schema is built here from the field numbers that TensorFlow publishes: neither TensorFlow nor TensorBoard is needed.
"""

import functools
import struct
from typing import Any

from crc32c import crc32c

LENGTH, CHECKSUM = struct.Struct("<QI"), struct.Struct("<I")  # length and its checksum; the record's checksum
FLOAT, STRING = 1, 7  # numbers of TensorFlow's types
FILE_VERSION = "brain.Event:2"
SESSION_START = 1
_PACKAGE = "phalanx.events"


def masked(data: memoryview | bytes) -> int:
    """The checksum of a part of a record: CRC-32C, turned and shifted."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def framed(record: bytes) -> bytes:
    """A record as it stands in a file."""
    length = len(record).to_bytes(8, "little")
    return LENGTH.pack(len(record), masked(length)) + record + CHECKSUM.pack(masked(record))


def event_message() -> tuple[type[Any], type[Exception]]:
    """The class of Events and its DecodeError."""
    from google.protobuf.message import DecodeError

    return message_class("Event"), DecodeError


@functools.cache
def message_class(name: str) -> type[Any]:
    """The class of one of the messages below."""
    from google.protobuf.message_factory import GetMessageClass

    return GetMessageClass(_pool().FindMessageTypeByName(f"{_PACKAGE}.{name}"))  # type: ignore[no-any-return]


@functools.cache
def _pool() -> Any:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

    file = FileDescriptorProto(name="phalanx/events.proto", package=_PACKAGE, syntax="proto3")
    kinds = {
        "int32": Field.TYPE_INT32,
        "int64": Field.TYPE_INT64,
        "float": Field.TYPE_FLOAT,
        "double": Field.TYPE_DOUBLE,
        "string": Field.TYPE_STRING,
        "bytes": Field.TYPE_BYTES,
    }
    for message, fields in _MESSAGES.items():
        made = file.message_type.add(name=message)
        if any(field.startswith("oneof ") for field in fields):
            made.oneof_decl.add(name="value")
        for field, number in fields.items():
            *rules, kind, name = field.split()
            added = made.field.add(
                name=name,
                number=number,
                label=Field.LABEL_REPEATED if "repeated" in rules else Field.LABEL_OPTIONAL,
                type=kinds.get(kind, Field.TYPE_MESSAGE),
            )
            if kind not in kinds:
                added.type_name = f".{_PACKAGE}.{kind}"
            if "oneof" in rules:
                added.oneof_index = 0
    pool = DescriptorPool()  # one of our own: TensorFlow, in the same process, has the default one
    pool.Add(file)
    return pool


# message → field → number; what is not read or written here is left out
_MESSAGES = {
    "Dim": {"int64 size": 1},
    "Shape": {"repeated Dim dim": 2},
    "Tensor": {
        "int32 dtype": 1,
        "Shape tensor_shape": 2,
        "bytes tensor_content": 4,
        "repeated float float_val": 5,
        "repeated double double_val": 6,
        "repeated int32 int_val": 7,
        "repeated bytes string_val": 8,
        "repeated int64 int64_val": 10,
    },
    "Image": {"int32 height": 1, "int32 width": 2, "int32 colorspace": 3, "bytes encoded_image_string": 4},
    "PluginData": {"string plugin_name": 1},
    "Metadata": {"PluginData plugin_data": 1},
    "Value": {
        "string tag": 1,
        "oneof float simple_value": 2,
        "oneof bytes image": 4,  # an Image, which readers of numbers need not decode
        "oneof Tensor tensor": 8,
        "Metadata metadata": 9,
    },
    "Summary": {"repeated Value value": 1},
    "SessionLog": {"int32 status": 1},
    "Event": {
        "double wall_time": 1,
        "int64 step": 2,
        "string file_version": 3,
        "Summary summary": 5,
        "SessionLog session_log": 7,
    },
}
