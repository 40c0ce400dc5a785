"""Reads the tensors of an old-format PyTorch checkpoint, without unpickling and without PyTorch.

Such a file is five pickles (a magic number, a version, facts on the writing machine, the state dict, the storage keys)
followed by the raw storages. Unpickling may call anything that a file names, so nothing here unpickles: `pickletools`
splits the bytes into opcodes, and a small stack machine follows the few that a state dict of tensors needs. The three
callables a state dict names stand for fixed constructions below and are never imported; anything else is refused.
"""

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.errors import InputError

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001

# The storages a tensor may lie in; all are little endian.
_STORAGES = {
    "torch DoubleStorage": "<f8",
    "torch FloatStorage": "<f4",
    "torch HalfStorage": "<f2",
    "torch LongStorage": "<i8",
    "torch IntStorage": "<i4",
    "torch ByteStorage": "<u1",
}
_DICT, _TENSOR = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"


def read_torch_file(content: bytes, name: str) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of a state dict by name.

    Args:
        content: of the file.
        name: what an error calls it.

    Raises:
        InputError: the file is no old-format checkpoint, is truncated, or holds anything but tensors.
    """
    stream = io.BytesIO(content)
    try:
        magic, version, _, state, keys = (_Machine().run(stream) for _ in range(5))
        if (magic, version) != (MAGIC, VERSION):
            raise _Unexpected(f"it starts with {magic!r}, {version!r}")
        _check_tensors(state)
        where = _locate(state, keys, content, stream.tell())
        return {key: _view(tensor, *where[tensor.storage.key]) for key, tensor in state.items()}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise InputError(
            f"{name} is not an old-format PyTorch checkpoint of plain tensors ({error}); fetch it again"
        ) from error


class _Unexpected(ValueError):
    """The file asks for something that a state dict of tensors does not need."""


@dataclass(frozen=True)
class _Global:
    name: str


@dataclass(frozen=True)
class _Storage:
    key: str
    dtype: str
    size: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Machine:
    """Follows the opcodes of one pickle; values are numbers, text, tuples, lists, dicts and the three classes above."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def run(self, stream: io.BytesIO) -> Any:
        """The value that the next pickle of the stream describes."""
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name == "STOP":
                return self._stack.pop()
            self._step(opcode.name, argument)
        raise _Unexpected("it ends early")

    def _step(self, name: str, argument: Any) -> None:
        if name in _LITERALS:
            self._stack.append(_LITERALS[name]() if argument is None else argument)
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = self._stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            self._stack.append(self._memo[argument])
        elif name == "MARK":
            self._marks.append(len(self._stack))
        elif name == "GLOBAL":
            self._stack.append(_known(argument))
        elif name in _STEPS:
            _STEPS[name](self)
        elif name != "PROTO":
            raise _Unexpected(f"it holds the opcode {name}")

    def _pop(self, count: int) -> list[Any]:
        if count > len(self._stack):
            raise _Unexpected("its stack runs empty")
        taken = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return taken

    def _pop_mark(self) -> list[Any]:
        return self._pop(len(self._stack) - self._marks.pop())

    def _tuple(self, count: int | None = None) -> None:
        self._stack.append(tuple(self._pop_mark() if count is None else self._pop(count)))

    def _set_items(self, count: int | None = None) -> None:
        items = self._pop_mark() if count is None else self._pop(count)
        self._stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _append_items(self, count: int | None = None) -> None:
        items = self._pop_mark() if count is None else self._pop(count)
        self._stack[-1].extend(items)

    def _persistent(self) -> None:
        kind, storage, key, _, size, view = self._stack.pop()
        if kind != "storage" or view is not None:
            raise _Unexpected(f"it refers to a {kind!r}")
        self._stack.append(_Storage(key, _STORAGES[storage.name], size))

    def _reduce(self) -> None:
        called, arguments = self._pop(2)
        if called == _Global(_DICT) and arguments == ():
            self._stack.append({})
        elif called == _Global(_TENSOR):
            storage, offset, shape, strides = arguments[:4]
            self._stack.append(_Tensor(storage, offset, shape, strides))
        else:
            raise _Unexpected(f"it calls {getattr(called, 'name', called)!s} in an unknown way")

    def _build(self) -> None:
        """Attributes of the state dict (versions of its modules): nothing that a tensor needs."""
        self._stack.pop()


_LITERALS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"), lambda: None),
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_STEPS: dict[str, Callable[[_Machine], None]] = {
    "TUPLE": lambda machine: machine._tuple(),
    "TUPLE1": lambda machine: machine._tuple(1),
    "TUPLE2": lambda machine: machine._tuple(2),
    "TUPLE3": lambda machine: machine._tuple(3),
    "SETITEM": lambda machine: machine._set_items(2),
    "SETITEMS": lambda machine: machine._set_items(),
    "APPEND": lambda machine: machine._append_items(1),
    "APPENDS": lambda machine: machine._append_items(),
    "BINPERSID": lambda machine: machine._persistent(),
    "REDUCE": lambda machine: machine._reduce(),
    "BUILD": lambda machine: machine._build(),
}


def _known(name: str) -> _Global:
    if name not in (_DICT, _TENSOR, *_STORAGES):
        raise _Unexpected(f"it names {name.replace(' ', '.')}")
    return _Global(name)


def _check_tensors(state: Any) -> None:
    for value in state.values() if isinstance(state, dict) else (state,):
        if not isinstance(value, _Tensor):
            raise _Unexpected(f"it holds {type(value).__name__}, not a dict of tensors")


def _locate(
    state: dict[str, _Tensor], keys: list[str], content: bytes, start: int
) -> dict[str, tuple[np.ndarray[Any, Any], int]]:
    """Storage key -> (its values, their number); each storage is its length in eight bytes and then the values."""
    dtypes = {tensor.storage.key: np.dtype(tensor.storage.dtype) for tensor in state.values()}
    found = {}
    for key in keys:
        size = int.from_bytes(content[start : start + 8], "little")
        values = np.frombuffer(content, dtypes[key], size, start + 8)
        found[key] = values, size
        start += 8 + values.nbytes
    return found


def _view(tensor: _Tensor, values: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    negative = min((tensor.offset, *tensor.shape, *tensor.strides)) < 0
    if negative or last >= size or math.prod(tensor.shape) > size:
        raise _Unexpected(f"a tensor of shape {tensor.shape} reaches outside its storage of {size}")
    strides = tuple(stride * values.itemsize for stride in tensor.strides)
    view = np.lib.stride_tricks.as_strided(values[tensor.offset :], tensor.shape, strides, writeable=False)
    return np.ascontiguousarray(view).reshape(tensor.shape)
