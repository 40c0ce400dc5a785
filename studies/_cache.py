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

Arrays = dict[str, np.ndarray[Any, Any]]

# Trained parameters small enough for the repository.
SHIPPED = Path(__file__).with_name("weights")

console = Console(stderr=True, highlight=False, soft_wrap=True)


def cache_folder(*parts: str) -> Path:
    """The folder, created if need be; it follows XDG_CACHE_HOME and its like."""
    folder = platformdirs.user_cache_path("jax-precision-tuner").joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_write(folder, error) from error
    return folder


def cached_arrays(name: str, make: Callable[[], Arrays], shapes: dict[str, tuple[int, ...]] | None = None) -> Arrays:
    """The arrays in `NAME.safetensors`, made and kept there where it is missing, truncated, or of other shapes.

    Args:
        name: carries the version of the code that makes them, so that changed code does not meet old arrays.
        make: gives the arrays by name.
        shapes: what must be in the file, if known.
    """
    path = cache_folder() / f"{name}.safetensors"
    if path.exists():
        try:
            arrays = load(path.read_bytes())
            if shapes is None or shapes == {key: array.shape for key, array in arrays.items()}:
                return arrays
            console.print(f"{path} holds other shapes: making it again")
        except SafetensorError as error:
            console.print(f"{path} is damaged ({error}): making it again")
    check_writable(path.parent)  # before minutes of work, not after
    content = save(make())
    write_whole(path, content)
    return load(content)


def cached_params(name: str, init: Callable[[], Any], train: Callable[[Any], Any]) -> Any:
    """Trained parameters, kept in `NAME.safetensors`; `train(init())` is called only where they are missing."""
    template = jax.eval_shape(init)
    shapes = {key: leaf.shape for key, leaf in _named_leaves(template).items()}
    arrays = cached_arrays(name, lambda: _to_arrays(train(init())), shapes)
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(template), [arrays[key] for key in shapes])


def shipped_params(name: str, template: Any, made_by: str) -> Any:
    """Trained parameters that come with the studies, in the structure of the template.

    Raises:
        InputError: the file is missing or damaged; names the module that makes it.
    """
    path = SHIPPED / f"{name}.safetensors"
    try:
        arrays = load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise InputError(
            f"cannot read the trained parameters in {path} ({error}); install the studies again, or train them with "
            f"python -m {made_by}"
        ) from error
    structure = jax.tree_util.tree_structure(template)
    return jax.tree_util.tree_unflatten(structure, [arrays[key] for key in _named_leaves(template)])


def ship(name: str, params: Any) -> None:
    """Writes the file that `shipped_params` reads."""
    SHIPPED.mkdir(exist_ok=True)
    write_whole(SHIPPED / f"{name}.safetensors", save(_to_arrays(params)))


def _to_arrays(params: Any) -> Arrays:
    return {key: np.ascontiguousarray(leaf) for key, leaf in _named_leaves(params).items()}


def _named_leaves(params: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def check_writable(folder: Path) -> None:
    """Returns where a file can be written there.

    Raises:
        InputError: it cannot; names the folder and the remedy.
    """
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _cannot_write(folder, error) from error


def write_whole(path: Path, content: bytes) -> None:
    """Writes a file of the cache, all or nothing, whoever else writes or dies meanwhile."""
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
