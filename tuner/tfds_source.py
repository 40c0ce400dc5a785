"""Evaluation data from tensorflow-datasets, without TensorFlow and without downloading anything."""

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np

from tuner.errors import InputError, error_line

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
    logging.getLogger("absl").addFilter(_is_news)
    inputs, labels = _chosen_keys(builder, keys)
    return _read(_open(builder, split), inputs, labels, batch_size)


def _is_news(record: logging.LogRecord) -> bool:
    """False for the advice to install another image library, which is no concern of whoever tunes a model."""
    return not str(record.msg).startswith("OpenCV is not installed")


def _find_builder(name: str, data_dir: Any) -> Any:
    import tensorflow_datasets

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


def _read(source: Any, inputs: str, labels: str, batch_size: int) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(source), batch_size):
        records = source.__getitems__(range(start, min(start + batch_size, len(source))))
        yield np.stack([record[inputs] for record in records]), np.stack([record[labels] for record in records])
