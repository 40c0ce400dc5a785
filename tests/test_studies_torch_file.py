"""Checkpoints are assembled from opcodes here: neither PyTorch nor an unpickler is at hand."""

import struct

import numpy as np
import pytest

from studies._torch_file import MAGIC, read_torch_file
from tuner.errors import InputError

VALUES = np.arange(6, dtype="<f4")


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def call(name: str) -> bytes:
    return b"c" + name.replace(" ", "\n").encode() + b"\n"


def pickled(body: bytes) -> bytes:
    return b"\x80\x02" + body + b"."


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(b"J" + struct.pack("<i", value) for value in values) + b"t"


def tensor(shape=(2, 3), strides=(3, 1), offset=0, storage="torch FloatStorage") -> bytes:
    reference = b"(" + text("storage") + call(storage) + text("key") + text("cpu") + b"K\x06Nt" + b"Q"
    arguments = b"(" + reference + b"K" + bytes([offset]) + numbers(shape) + numbers(strides) + b"\x89" + b"Nt"
    return call("torch._utils _rebuild_tensor_v2") + arguments + b"R"


def state_dict(value: bytes) -> bytes:
    return call("collections OrderedDict") + b")Rq\x01(" + text("weight") + value + b"u}b"


def checkpoint(state: bytes, values: np.ndarray = VALUES, magic: int = MAGIC) -> bytes:
    first = pickled(b"\x8a\x0a" + magic.to_bytes(10, "little")) + pickled(b"M\xe9\x03") + pickled(b"}")
    keys = pickled(b"](" + text("key") + b"e")
    return first + pickled(state) + keys + len(values).to_bytes(8, "little") + values.tobytes()


def read(content: bytes) -> np.ndarray:
    return read_torch_file(content, "model.pth")["weight"]


def test_a_tensor_is_read():
    np.testing.assert_array_equal(read(checkpoint(state_dict(tensor()))), VALUES.reshape(2, 3))


def test_strides_and_offsets_are_followed():
    np.testing.assert_array_equal(read(checkpoint(state_dict(tensor((3, 2), (1, 3))))), VALUES.reshape(2, 3).T)
    np.testing.assert_array_equal(read(checkpoint(state_dict(tensor((2,), (2,), offset=1)))), [1, 3])


REFUSED = {
    "a call of something else": (state_dict(call("os system") + b"(" + text("true") + b"tR"), "it names os.system"),
    "a dict with content": (
        state_dict(call("collections OrderedDict") + b"(K\x01tR"),
        "it calls collections OrderedDict in an unknown way",
    ),
    "a newer way to name": (state_dict(b"\x8c\x02os\x8c\x06system\x93"), "it holds the opcode SHORT_BINUNICODE"),
    "an older way to call": (state_dict(b"(ios\nsystem\n"), "it holds the opcode INST"),
    "too large": (state_dict(tensor((3, 3))), "a tensor of shape (3, 3) reaches outside its storage of 6"),
    "backwards": (state_dict(tensor((2, 3), (-3, 1))), "a tensor of shape (2, 3) reaches outside its storage"),
    "blown up": (state_dict(tensor((9, 9), (0, 0))), "a tensor of shape (9, 9) reaches outside its storage"),
    "odd storage": (state_dict(tensor(storage="torch BoolStorage")), "it names torch.BoolStorage"),
    "no state dict": (b"K\x01", "it holds int, not a dict of tensors"),
    "no tensors": (state_dict(b"K\x01"), "it holds int, not a dict of tensors"),
    "an empty stack": (b"\x85", "its stack runs empty"),
}


@pytest.mark.parametrize(("state", "reason"), REFUSED.values(), ids=REFUSED)
def test_anything_but_tensors_is_refused_and_nothing_is_called(state, reason):
    with pytest.raises(InputError) as caught:
        read(checkpoint(state))
    assert str(caught.value).startswith("model.pth is not an old-format PyTorch checkpoint of plain tensors (")
    assert reason in str(caught.value)


def test_another_format_is_told():
    with pytest.raises(InputError, match=r"\(it starts with 1, 1001\); fetch it again"):
        read(checkpoint(state_dict(tensor()), magic=1))


@pytest.mark.parametrize("length", [0, 1, 14, 30, 100, 200, -4])
def test_a_truncated_file_is_refused(length):
    with pytest.raises(InputError, match=r"^model.pth is not an old-format PyTorch checkpoint"):
        read(checkpoint(state_dict(tensor()))[:length])
