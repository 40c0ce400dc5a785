"""Calibrated numbers as JSON: in policy files, in the database, and between a search and its child."""

from typing import Any

from tuner.errors import PolicyError
from tuner.json_fields import REMEDY, flat_from_json, get_field, refuse_unknown, require, require_finite
from tuner.scales import CalibratedOn, Calibration, LayerScales

_FIELDS = ("scale", "zero_point", "correction")


def layer_scales_to_json(scales: LayerScales) -> dict[str, list[float]]:
    """The numbers of one layer; what its precision does not need is left out."""
    return {name: list(getattr(scales, name)) for name in _FIELDS if getattr(scales, name)}


def layer_scales_from_json(value: Any, where: str, layer: str) -> LayerScales:
    """What `layer_scales_to_json` wrote; a bare list, as format 1 had it, is one of scales.

    Raises:
        PolicyError: something is of a wrong type, unknown, or no number that can be.
    """
    thing = f"the object of scales of layer {layer!r}"
    if isinstance(value, list):
        value = {"scale": value}
    require(value, dict, where, thing)
    refuse_unknown(value, _FIELDS, where, thing)
    read: dict[str, tuple[float, ...]] = {}
    for name in value:
        numbers = require(value[name], list, where, f"field {name!r} of {thing}")
        read[name] = tuple(require_finite(number, where, f"a {_words(name)} of layer {layer!r}") for number in numbers)
    for scale in read.get("scale", ()):
        if scale <= 0:
            raise PolicyError(f"{where}: a scale of layer {layer!r} is {scale:g}, not above zero; {REMEDY}")
    zeros = read.get("zero_point", ())
    for zero in zeros:
        if zero != int(zero) or not -128 <= zero <= 127:
            raise PolicyError(
                f"{where}: a zero point of layer {layer!r} is {zero:g}, no whole number from -128 to 127; {REMEDY}"
            )
    return LayerScales(
        scale=read.get("scale", ()), zero_point=tuple(map(int, zeros)), correction=read.get("correction", ())
    )


def _words(field: str) -> str:
    return field.replace("_", " ")


def calibrated_on_to_json(on: CalibratedOn) -> dict[str, Any]:
    """The examples that numbers come from."""
    return {"examples": on.examples, "split": on.split, "fingerprint": on.fingerprint}


def calibrated_on_from_json(value: Any, where: str) -> CalibratedOn | None:
    """What `calibrated_on_to_json` wrote; None for null.

    Raises:
        PolicyError: a field is missing or of another type.
    """
    return None if value is None else flat_from_json(CalibratedOn, value, where, "the calibration")


def calibration_to_json(calibration: Calibration) -> dict[str, Any]:
    """Everything that calibration found."""
    numbers = {
        layer: {precision: layer_scales_to_json(scales) for precision, scales in found.items()}
        for layer, found in calibration.numbers.items()
    }
    on = None if calibration.on is None else calibrated_on_to_json(calibration.on)
    return {"on": on, "numbers": numbers, "problems": dict(calibration.problems)}


def calibration_from_json(value: Any, where: str) -> Calibration:
    """What `calibration_to_json` wrote.

    Raises:
        PolicyError: a field is missing or of another type.
    """
    found = get_field(require(value, dict, where, "the calibration"), "numbers", dict, where, "the calibration")
    numbers = {
        layer: {text: layer_scales_from_json(scales, where, layer) for text, scales in precisions.items()}
        for layer, precisions in found.items()
    }
    problems = get_field(value, "problems", dict, where, "the calibration")
    return Calibration(on=calibrated_on_from_json(value.get("on"), where), numbers=numbers, problems=problems)
