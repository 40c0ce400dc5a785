"""Why JAX cannot trace a function, in one sentence: what it does, on which line, and what to write instead."""

import linecache
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

# Error of JAX -> (what the function does with a value known only when it runs, what to write instead); the first that fits.
_PROBLEMS = (
    (
        "TracerBoolConversionError",
        "branches in Python on a value that is known only when it runs",
        "choose with jax.numpy.where, or branch with jax.lax.cond or jax.lax.while_loop",
    ),
    (
        "NonConcreteBooleanIndexError",
        "selects by a mask that is known only when it runs, so the size of the result is not",
        "keep all entries, and choose with jax.numpy.where",
    ),
    (
        "TracerArrayConversionError",
        "hands NumPy a value that is known only when it runs",
        "use jax.numpy there, or jax.pure_callback",
    ),
    (
        "ConcretizationTypeError",
        "makes a Python number, a length or a shape of a value that is known only when it runs",
        "take it from the shapes of its arguments, or keep it a jax.numpy array",
    ),
)
_SHOWN = 40


def trace_problem(function: Callable[..., Any], arguments: tuple[Any, ...], error: Exception) -> str | None:
    """What a function does that JAX cannot trace, to be read after its name; None for errors of any other sort.

    Args:
        function: what was traced.
        arguments: what it was traced with, arrays or their shapes and dtypes.
        error: what was raised.
    """
    from jax import errors

    for name, found, remedy in _PROBLEMS:
        if isinstance(error, getattr(errors, name)):
            line = _line_of(error.__traceback__)
            return f"{found}{f' ({line})' if line else ''}; {remedy}"
    return _output_problem(function, arguments) if isinstance(error, TypeError) else None


def _output_problem(function: Callable[..., Any], arguments: tuple[Any, ...]) -> str | None:
    """What the function returns that is no array, None when the error comes from elsewhere."""
    import jax

    found: list[str] = []

    def look(*given: Any) -> None:
        for path, leaf in jax.tree_util.tree_flatten_with_path(function(*given))[0]:
            try:
                jax.typeof(leaf)
            except TypeError:
                where = f"output{jax.tree_util.keystr(path)}"
                found.append(f"returns a {type(leaf).__name__} as {where} ({_short(leaf)}), which JAX cannot compute")

    try:
        jax.eval_shape(look, *arguments)
    except Exception:  # noqa: BLE001  it fails before it returns, as it did before
        return None
    return f"{found[0]}; return arrays alone, and add the rest outside of the function" if found else None


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _line_of(traceback: TracebackType | None) -> str | None:
    """`model.py:12: if x.sum() > 0:`, the innermost line that is neither JAX's nor NumPy's nor ours."""
    skipped = [
        Path(spec.origin).parent for name in ("jax", "numpy", "tuner") if (spec := find_spec(name)) and spec.origin
    ]
    place = None
    while traceback is not None:
        path = Path(traceback.tb_frame.f_code.co_filename)
        if path.suffix == ".py" and not any(path.is_relative_to(folder) for folder in skipped):
            place = path, traceback.tb_lineno
        traceback = traceback.tb_next
    if place is None:
        return None
    source = linecache.getline(str(place[0]), place[1]).strip()
    return f"{place[0].name}:{place[1]}" + (f": {source}" if source else "")
