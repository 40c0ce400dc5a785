"""Evaluation data from tensorflow-datasets, without TensorFlow and without downloading anything."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from tuner.errors import InputError, error_line

# What reading a damaged data set raises.
DAMAGED = (OSError, RuntimeError, ValueError, IndexError)
# What prepares a data set so that it can be read without TensorFlow.
PREPARE = 'tensorflow_datasets.builder({name!r}, file_format="array_record").download_and_prepare()'


def tfds(
    name: Any, *, split: str = "test", batch_size: int = 256, data_dir: Any = None, keys: tuple[str, str] | None = None
) -> Iterator[tuple[Any, Any]]:
    """Batches of (inputs, labels) from a data set that tensorflow-datasets has prepared on this machine.

    Args:
        name: the name of a data set, or one of its builders.
        split: such as "test" or "train[:10%]".
        batch_size: examples per batch; does not matter for a Task, which takes them apart again.
        data_dir: where it was prepared; by default where tensorflow-datasets looks.
        keys: the features to take as inputs and labels; by default the data set's supervised keys.
    """
    builder = _find_builder(name, data_dir) if isinstance(name, str) else name
    if not (builder.data_path / "dataset_info.json").exists():
        raise InputError(
            f"data set {builder.name!r} is not prepared in {builder.data_dir}; run "
            f"{PREPARE.format(name=builder.name)} where there is a network"
        )
    size: Any = batch_size
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InputError(f"batch_size={batch_size!r} of data set {builder.name!r} is not a whole number of at least 1")
    logging.getLogger("absl").addFilter(_is_news)
    inputs, labels = _chosen_keys(builder, keys)
    return _read(builder, _open(builder, split), (inputs, labels), batch_size)


def _is_news(record: logging.LogRecord) -> bool:
    """False for the advice to install another image library, which is no concern of whoever tunes a model."""
    return not str(record.msg).startswith("OpenCV is not installed")


def _find_builder(name: str, data_dir: Any) -> Any:
    try:
        import tensorflow_datasets
    except ModuleNotFoundError as error:
        raise InputError(
            f"the data set {name!r} needs {error.name}; pip install tensorflow-datasets importlib_resources pillow"
        ) from error

    try:
        return tensorflow_datasets.builder(name, data_dir=data_dir)
    except tensorflow_datasets.core.DatasetNotFoundError as error:
        raise InputError(f"unknown tensorflow-datasets data set {name!r}; check the spelling") from error


def _open(builder: Any, split: str) -> Any:
    try:
        return builder.as_data_source(split=split)
    except NotImplementedError as error:
        raise InputError(
            f"data set {builder.name!r} in {builder.data_dir} is not stored as array_record, which is what can be read "
            f"without TensorFlow; remove that folder and run {PREPARE.format(name=builder.name)}"
        ) from error
    except ValueError as error:
        raise InputError(
            f"data set {builder.name!r} has no split {split!r} ({error_line(error)}); "
            f"use one of {', '.join(builder.info.splits)}, or a slice such as 'test[:50%]'"
        ) from error


def _chosen_keys(builder: Any, keys: tuple[str, str] | None) -> tuple[str, str]:
    chosen = keys or builder.info.supervised_keys
    if not chosen or len(chosen) != 2 or not all(key in builder.info.features for key in chosen):
        raise InputError(
            f"data set {builder.name!r} has the features {', '.join(sorted(builder.info.features))}, and keys={chosen!r} does "
            "not name two of them; give keys=(inputs, labels)"
        )
    return chosen[0], chosen[1]


def _read(builder: Any, source: Any, keys: tuple[str, str], batch_size: int) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(source), batch_size):
        try:
            records = source.__getitems__(range(start, min(start + batch_size, len(source))))
        except DAMAGED as error:
            raise InputError(
                f"data set {builder.name!r} in {builder.data_path} is damaged ({error_line(error)}); remove that folder and "
                f"run {PREPARE.format(name=builder.name)} where there is a network"
            ) from error
        inputs, labels = (_stack([record[key] for record in records], key, builder.name) for key in keys)
        yield inputs, labels


def _stack(values: list[Any], key: str, name: str) -> Any:
    """One feature of several examples, which may be a tree of features."""
    import jax

    try:
        return jax.tree_util.tree_map(lambda *leaves: np.stack(leaves), *values)
    except ValueError as error:
        raise InputError(
            f"examples of feature {key!r} of data set {name!r} do not fit together: {error_line(error)}; read them with "
            "builder.as_data_source() and pad or resize them to one shape"
        ) from error
