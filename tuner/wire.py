"""Wire: what a search and the process that measures for it say to each other, as JSON over two pipes.

Every frame is its length in eight bytes and then that many bytes. Nothing here knows JAX.
"""

import dataclasses
import json
import os
import select
import struct
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tuner import diagnosis, effect, kernel_choice, measurement, scales
from tuner.policy import Policy
from tuner.policy_json import policy_from_json, policy_to_json

_LENGTH = struct.Struct(">Q")
_CHUNK = 2**16
# Values that may be sent besides what JSON knows: every dataclass of what is measured, probed and calibrated, by its name.
_RECORDS: dict[str, Any] = {
    name: value
    for module in (measurement, diagnosis, effect, kernel_choice, scales)
    for name, value in vars(module).items()
    if dataclasses.is_dataclass(value) and value.__module__ == module.__name__
}
_TYPE = "record"
_TUPLE = "tuple"
_MAPPING = "mapping"


class Channel:
    """One end of the two pipes.

    Args:
        reading: file descriptor that frames come from.
        writing: file descriptor that frames go to.
    """

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._buffer = bytearray()

    def send(self, message: Mapping[str, Any]) -> None:
        """Writes one message.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        self.send_bytes(json.dumps(message, separators=(",", ":")).encode())

    def send_bytes(self, data: bytes) -> None:
        """Writes one frame."""
        rest = memoryview(_LENGTH.pack(len(data)) + data)
        while rest:
            rest = rest[os.write(self._writing, rest) :]

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """The next message.

        Args:
            timeout: seconds to wait; forever when None.

        Raises:
            TimeoutError: none came.
            EOFError: the other end is gone.
        """
        message: dict[str, Any] = json.loads(self.receive_bytes(timeout))
        return message

    def receive_bytes(self, timeout: float | None = None) -> bytes:
        """The next frame; errors as of `receive`."""
        ends = None if timeout is None else time.monotonic() + timeout
        self._fill(_LENGTH.size, ends)
        length = _LENGTH.size + _LENGTH.unpack_from(self._buffer)[0]
        self._fill(length, ends)
        frame = bytes(memoryview(self._buffer)[_LENGTH.size : length])
        del self._buffer[:length]
        return frame

    def close(self) -> None:
        """Closes both pipes."""
        os.close(self._reading)
        os.close(self._writing)

    def _fill(self, length: int, ends: float | None) -> None:
        """Reads until the buffer has so many bytes; what came stays there when the time is over."""
        while len(self._buffer) < length:
            left = None if ends is None else max(0.0, ends - time.monotonic())
            poll = select.poll()  # unlike select.select, at home with any file descriptor
            poll.register(self._reading, select.POLLIN)
            if not poll.poll(None if left is None else left * 1000):
                raise TimeoutError
            data = os.read(self._reading, max(_CHUNK, length - len(self._buffer)))
            if not data:
                raise EOFError
            self._buffer += data


def encode(value: Any) -> Any:
    """The value as JSON: records of what was measured, mappings, tuples, lists and plain values."""
    if dataclasses.is_dataclass(value):
        fields = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {_TYPE: type(value).__name__, "fields": fields}
    if isinstance(value, Mapping):
        return {_MAPPING: {key: encode(item) for key, item in value.items()}}
    if isinstance(value, tuple):
        return {_TUPLE: [encode(item) for item in value]}
    return [encode(item) for item in value] if isinstance(value, list) else value


def decode(value: Any) -> Any:
    """What `encode` was given."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TYPE in value:
        return _RECORDS[value[_TYPE]](**{name: decode(item) for name, item in value["fields"].items()})
    if _TUPLE in value:
        return tuple(decode(item) for item in value[_TUPLE])
    return MappingProxyType({key: decode(item) for key, item in value[_MAPPING].items()})


def policy_message(policy: Policy) -> dict[str, Any]:
    """A policy as JSON, without where it came from."""
    return policy_to_json(dataclasses.replace(policy, program=None, provenance=None))


def read_policy(message: Any) -> Policy:
    """The policy of `policy_message`."""
    return policy_from_json(message, "the policy to measure")
