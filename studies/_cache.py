"""What studies keep between runs, in the user's cache folder: trained parameters as safetensors, and data sets."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import platformdirs
from rich.console import Console
from safetensors import SafetensorError
from safetensors.numpy import load, save

from tuner.errors import InputError

console = Console(stderr=True, highlight=False, soft_wrap=True)


def cache_folder(*parts: str) -> Path:
    """The folder, created if need be; it follows XDG_CACHE_HOME and its like."""
    folder = platformdirs.user_cache_path("jax-precision-tuner").joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return folder


def cached_params(name: str, init: Callable[[], Any], train: Callable[[Any], Any]) -> Any:
    """Parameters read from `NAME.safetensors`, or trained from `init()`'s and kept there.

    Args:
        name: carries the version of the code that trains, so that changed code does not meet old parameters.
        init: gives parameters of the right structure, cheap or not: it is only traced when the file is there.
        train: gives trained parameters from initial ones.
    """
    path = cache_folder() / f"{name}.safetensors"
    if path.exists():
        try:
            return _restore(path.read_bytes(), jax.eval_shape(init))
        except (SafetensorError, ValueError) as error:
            console.print(f"{path} is damaged ({error}): training again")
    params = train(init())
    _write(path, save({name: np.asarray(leaf) for name, leaf in _named_leaves(params).items()}))
    # As a later run will read them: numpy arrays in the same structure.
    return jax.tree_util.tree_map(np.asarray, params)


def _named_leaves(params: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def _restore(content: bytes, shapes: Any) -> Any:
    arrays = load(content)
    expected = _named_leaves(shapes)
    if {name: array.shape for name, array in arrays.items()} != {name: leaf.shape for name, leaf in expected.items()}:
        raise ValueError("it holds other parameters")
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), [arrays[name] for name in expected])


def _write(path: Path, content: bytes) -> None:
    """Writes all or nothing, whoever else writes or dies meanwhile."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            Path(temporary).replace(path)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> InputError:
    return InputError(
        f"cannot write {path} ({error.strerror}); make room or set XDG_CACHE_HOME to a folder that can be written"
    )
