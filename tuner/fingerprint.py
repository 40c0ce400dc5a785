"""Fingerprints: SHA-256 digests of pytrees and of code, in which one changed value is noticed."""

import functools
import hashlib
import inspect
import types
from typing import Any

import numpy as np


def hash_text(*parts: str) -> str:
    """Hex digest of several texts, in order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode())
        digest.update(b"\0")
    return digest.hexdigest()


def hash_tree(tree: Any) -> str:
    """Hex digest of a pytree: paths, shapes, dtypes and values of its leaves."""
    import jax

    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        digest.update(jax.tree_util.keystr(path).encode())
        if callable(leaf) and not hasattr(leaf, "dtype"):
            digest.update(hash_callable(leaf).encode())
            continue
        array = _as_numpy(leaf)
        digest.update(f"{array.dtype}{array.shape}".encode())
        if array.dtype == object:
            digest.update(type(leaf).__qualname__.encode())
        else:
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def hash_callable(function: Any) -> str:
    """Hex digest of a callable: qualified name, source (or bytecode), defaults and what it closes over."""
    if isinstance(function, functools.partial):
        return hash_text("partial", hash_callable(function.func), _hash_value((function.args, function.keywords)))
    function = inspect.unwrap(function)
    if isinstance(function, types.MethodType):
        return hash_text("method", hash_callable(function.__func__), _hash_value(function.__self__))
    name = getattr(function, "__qualname__", type(function).__qualname__)
    code = getattr(function, "__code__", None)
    if code is None:  # a class, a built-in, or an object with __call__
        settings = [_hash_value(getattr(function, field)) for field in getattr(function, "__dataclass_fields__", ())]
        return hash_text(str(getattr(function, "__module__", "")), name, _source(type(function)), *settings)
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    kept = [function.__defaults__, function.__kwdefaults__, cells]
    return hash_text(name, _source(function) or _bytecode(code), *map(_hash_value, kept))


def _as_numpy(leaf: Any) -> np.ndarray[Any, Any]:
    import jax
    import jax.numpy as jnp

    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def _hash_value(value: Any) -> str:
    """Hex digest of something that code refers to; objects without a stable text count by their type only."""
    if isinstance(value, (str, bytes, int, float, complex, bool, type(None))):
        return hash_text(type(value).__name__, repr(value))
    if isinstance(value, (tuple, list)):
        return hash_text(type(value).__name__, *map(_hash_value, value))
    if isinstance(value, dict):
        return hash_text("dict", *(_hash_value(item) for item in value.items()))
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return hash_tree(value)
    if isinstance(value, types.FunctionType):  # without its own closure, which may lead back here
        return hash_text(value.__qualname__, _source(value) or _bytecode(value.__code__))
    return hash_text(f"{type(value).__module__}.{type(value).__qualname__}")


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):  # typed into a plain prompt, built in, or compiled
        return ""


def _bytecode(code: types.CodeType) -> str:
    constants = [_bytecode(c) if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    return hash_text(code.co_code.hex(), repr(code.co_names), *constants)


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:  # a name bound only later
        return False
    return True
