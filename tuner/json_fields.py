"""Reading JSON that people may have edited: each mistake becomes a sentence with file, thing, value and remedy."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from tuner.errors import PolicyError

REMEDY = "export it again with `tuner export`"
_TYPE_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
}

Flat = TypeVar("Flat")


def get_field(holder: dict[str, Any], field: str, kind: type[Any], where: str, thing: str) -> Any:
    """The value of a field that must be there, in the type it must have.

    Raises:
        PolicyError: it is missing or of another type.
    """
    if field not in holder:
        raise PolicyError(f"{where}: {thing} has no field {field!r}; {REMEDY}")
    return require(holder[field], kind, where, f"field {field!r} of {thing}")


def require(value: Any, kind: type[Any], where: str, thing: str) -> Any:
    """The value, when it has the type; a whole number is a number, and true is neither.

    Raises:
        PolicyError: it has another type.
    """
    kinds = (int, float) if kind is float else (kind,)
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
        raise PolicyError(f"{where}: {thing} is {shown(value)} where {_TYPE_NAMES[kind]} belongs; {REMEDY}")
    return value


def require_finite(value: Any, where: str, thing: str) -> float:
    """The value as a float, when it is a number that a float can hold.

    Raises:
        PolicyError: it is none.
    """
    try:
        number = float(require(value, float, where, thing))
    except OverflowError:  # a whole number with hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        raise PolicyError(f"{where}: {thing} is {shown(value)}, not a finite number; {REMEDY}")
    return number


def refuse_unknown(holder: dict[str, Any], known: Sequence[str], where: str, thing: str) -> None:
    """Returns when every field of the object is known.

    Raises:
        PolicyError: one is not, perhaps misspelt.
    """
    for field in holder:
        if field not in known:
            raise PolicyError(f"{where}: {thing} has an unknown field {field!r}; the fields are {', '.join(known)}")


def flat_to_json(record: Any) -> dict[str, Any]:
    """A dataclass of numbers and texts as a JSON object; null for NaN and infinities, which JSON does not have."""
    return {field.name: without_nan(getattr(record, field.name)) for field in dataclasses.fields(record)}


def flat_from_json(cls: type[Flat], value: Any, where: str, thing: str) -> Flat:
    """What `flat_to_json` wrote; NaN for null. Further fields are left alone, and those with a default may be missing.

    Raises:
        PolicyError: a field is missing or of another type.
    """
    holder = require(value, dict, where, thing)
    read: dict[str, Any] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]  # any dataclass
        if field.default is not dataclasses.MISSING and field.name not in holder:
            continue  # older versions did not write it
        if field.type is float and holder.get(field.name, 0) is None:
            read[field.name] = math.nan
        elif field.type is float:
            number = get_field(holder, field.name, float, where, thing)
            read[field.name] = require_finite(number, where, f"field {field.name!r} of {thing}")
        else:
            read[field.name] = get_field(holder, field.name, field.type, where, thing)  # type: ignore[arg-type]
    return cls(**read)


def without_nan(value: Any) -> Any:
    """The same JSON value with null for NaN and infinities."""
    if isinstance(value, Mapping):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def shown(value: Any) -> str:
    """A value as it stands in the file, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
