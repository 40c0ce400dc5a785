"""Importing a model library only when one of its models is given."""

from importlib import import_module
from typing import Any

from tuner.errors import InputError


def load(module: str, *, extra: str) -> Any:
    """The module of a model library, or an InputError that names the extra which installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise InputError(
            f"a model of {module} needs {error.name}, which is not installed; "
            f"run: pip install 'jax-precision-tuner[{extra}]'"
        ) from error
