"""The JSON that a policy is: one serializer for policy files and for the database.

    {"format": 1, or 2 where there are scales,
     "layers": [{"name": ..., "kind": ..., "shape": [...], "precision": "i8/i8/i32", "kernel": "plain"}, ...],
     "scales": {layer name: {"scale": [...], "zero_point": [...], "correction": [...]}},
     "calibration": {"examples": ..., "split": "search" or "given", "fingerprint": ...}: what the scales come from,
     "fusions": [{"kind": "affine", "layers": [layer name, ...]}, ...], left out where there are none,
     "inputs": the inputs the program was captured with, null where JSON cannot say them,
     "split_scans": true where the layers of a scan are listed by iteration, else left out,
     "provenance": {where it was measured, and what}}

`kind`, `shape` and `inputs` are the program's signature: all there or none. `tuner/policy.schema.json` is the same as
a JSON Schema. Reading checks everything in plain code, runs nothing and evaluates nothing.
"""

import json
from functools import lru_cache
from typing import Any

from search_spaces import Precision, SearchSpaceError
from tuner.errors import PolicyError
from tuner.json_fields import REMEDY, get_field, refuse_unknown, require, shown, without_nan
from tuner.policy import PLAIN, Assignment, Fusion, Policy, ProgramSignature
from tuner.provenance import check_provenance
from tuner.scales import LayerScales
from tuner.scales_json import (
    calibrated_on_from_json,
    calibrated_on_to_json,
    layer_scales_from_json,
    layer_scales_to_json,
)

# History: 1, the first; 2, scales by name, and what calibrated them. What has none is still written as 1.
FORMAT = 2
_WITHOUT_SCALES = 1

_FIELDS = ("format", "layers", "scales", "calibration", "fusions", "inputs", "split_scans", "provenance")
_LAYER_FIELDS = ("name", "kind", "shape", "precision", "kernel")


def policy_to_json(policy: Policy) -> dict[str, Any]:
    """The policy as JSON values; what it does not have is left out."""
    kinds = {name: (kind, shape) for name, kind, shape in policy.program.layers} if policy.program else {}
    document: dict[str, Any] = {"format": FORMAT if policy.scales else _WITHOUT_SCALES, "layers": []}
    for name, assignment in policy.assignments:
        layer: dict[str, Any] = {"name": name}
        if policy.program is not None:
            kind, shape = kinds[name]
            layer |= {"kind": kind, "shape": list(shape)}
        document["layers"].append(layer | {"precision": str(assignment.precision), "kernel": assignment.kernel})
    if policy.scales:
        document["scales"] = {name: layer_scales_to_json(scales) for name, scales in policy.scales}
        if policy.calibrated_on is not None:
            document["calibration"] = calibrated_on_to_json(policy.calibrated_on)
    if policy.fusions:
        document["fusions"] = [{"kind": fusion.kind, "layers": list(fusion.layers)} for fusion in policy.fusions]
    if policy.program is not None:
        document["inputs"] = json.loads(policy.program.inputs) if policy.program.inputs else None
        if policy.program.split_scans:
            document["split_scans"] = True
    if policy.provenance is not None:
        document["provenance"] = without_nan(policy.provenance)
    return document


def policy_from_json(document: Any, where: str) -> Policy:
    """The policy that the JSON values mean.

    Args:
        document: what was read.
        where: the file or row it came from, for messages.

    Raises:
        PolicyError: something is missing, of a wrong type, unknown, doubled, or from a newer version.
    """
    require(document, dict, where, "the whole")
    _check_format(document, where)
    refuse_unknown(document, _FIELDS, where, "the policy")
    layers = get_field(document, "layers", list, where, "the policy")
    names: set[str] = set()
    assignments = []
    for position, layer in enumerate(layers, start=1):
        name, assignment = _read_layer(layer, position, where)
        if name in names:
            raise PolicyError(f"{where} has layer {name!r} twice; remove one of the two lines")
        names.add(name)
        assignments.append((name, assignment))
    return Policy(
        assignments=tuple(assignments),
        scales=_read_scales(document.get("scales", {}), names, where),
        calibrated_on=calibrated_on_from_json(document.get("calibration"), where),
        program=_read_signature(document, layers, where),
        provenance=check_provenance(document.get("provenance"), where),
        fusions=_read_fusions(document.get("fusions", []), names, where),
    )


def _check_format(document: dict[str, Any], where: str) -> None:
    version = get_field(document, "format", int, where, "the policy")
    if version > FORMAT:
        raise PolicyError(
            f"{where} is of policy format {version}, newer than the {FORMAT} this version reads; "
            "upgrade jax-precision-tuner"
        )
    if version < 1:
        raise PolicyError(f"{where} is of policy format {version}, which never existed; {REMEDY}")


def _read_layer(layer: Any, position: int, where: str) -> tuple[str, Assignment]:
    thing = f"layer {position}"
    require(layer, dict, where, thing)
    name = get_field(layer, "name", str, where, thing)
    if not name:
        raise PolicyError(f"{where}: {thing} has an empty name; {REMEDY}")
    thing = f"layer {name!r}"
    refuse_unknown(layer, _LAYER_FIELDS, where, thing)
    text = get_field(layer, "precision", str, where, thing)
    kernel = get_field(layer, "kernel", str, where, thing) if "kernel" in layer else PLAIN
    try:
        precision = parse_precision(text)
    except SearchSpaceError as problem:
        raise PolicyError(f"{where}: {thing}: {problem}") from problem
    return name, Assignment(precision=precision, kernel=kernel)


@lru_cache(maxsize=1024)
def parse_precision(text: str) -> Precision:
    """`Precision.parse`, remembered: a study repeats a few texts in thousands of layers."""
    return Precision.parse(text)


def _read_scales(scales: Any, names: set[str], where: str) -> tuple[tuple[str, LayerScales], ...]:
    require(scales, dict, where, "field 'scales'")
    read = []
    for name, numbers in scales.items():
        if name not in names:
            raise PolicyError(f"{where} has scales for layer {name!r}, which it does not list; {REMEDY}")
        read.append((name, layer_scales_from_json(numbers, where, name)))
    return tuple(read)


def _read_fusions(fusions: Any, names: set[str], where: str) -> tuple[Fusion, ...]:
    require(fusions, list, where, "field 'fusions'")
    read = set()
    for position, fusion in enumerate(fusions, start=1):
        thing = f"fusion {position}"
        require(fusion, dict, where, thing)
        refuse_unknown(fusion, ("kind", "layers"), where, thing)
        kind = get_field(fusion, "kind", str, where, thing)
        layers = get_field(fusion, "layers", list, where, thing)
        for name in layers:
            if name not in names:
                raise PolicyError(f"{where}: {thing} is of layer {name!r}, which it does not list; {REMEDY}")
        read.add(Fusion(kind, tuple(layers)))
    return tuple(sorted(read))


def _read_signature(document: dict[str, Any], layers: list[Any], where: str) -> ProgramSignature | None:
    """The program's layer table; None where the file has none of it."""
    if "inputs" not in document and not any("kind" in layer or "shape" in layer for layer in layers):
        return None
    if "inputs" not in document:
        raise PolicyError(f"{where} has no field 'inputs', which belongs to the kinds of its layers; {REMEDY}")
    table = []
    for layer in layers:
        thing = f"layer {layer['name']!r}"
        shape = get_field(layer, "shape", list, where, thing)
        if not all(isinstance(size, int) and not isinstance(size, bool) and size >= 0 for size in shape):
            raise PolicyError(f"{where}: {thing} has shape {shown(shape)}, not a list of sizes; {REMEDY}")
        table.append((layer["name"], get_field(layer, "kind", str, where, thing), tuple(shape)))
    inputs = document["inputs"]  # null where the program takes something that JSON cannot say
    text = "" if inputs is None else json.dumps(inputs, separators=(",", ":"))
    split_scans = get_field(document, "split_scans", bool, where, "the policy") if "split_scans" in document else False
    return ProgramSignature(layers=tuple(table), inputs=text, split_scans=split_scans)
