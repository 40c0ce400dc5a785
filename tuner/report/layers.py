"""The layers of a task: name, kind, size, what each may take, and why one may not."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TextIO

from search_spaces import Precision
from tuner.diagnosis import REFUSED
from tuner.report import numbers
from tuner.report.table import DIM, Column, Row, write_table

if TYPE_CHECKING:  # its package loads JAX
    from tuner.program.layer import Layer

FORMAT = 1

_COLUMNS = (
    Column("layer"),
    Column("kind"),
    Column("shape", spare=1),
    Column("params", right=True),
    Column("flops", right=True, spare=2),
    Column("runs", right=True, spare=3),
    Column("precisions"),
)


Refused = Mapping[str, Mapping[Precision, str]]


def write_layers(
    layers: Sequence["Layer"],
    choices: Mapping[str, Sequence[Precision]],
    file: TextIO,
    refused: Refused = MappingProxyType({}),
) -> None:
    """One line per layer; in place of the precisions, the reason why there is no choice."""
    rows = [_row(layer, choices.get(layer.name, ()), refused.get(layer.name, {})) for layer in layers]
    write_table(_COLUMNS, rows, file)


def unavailable_notes(refused: Refused) -> list[str]:
    """One sentence per precision that a space asks for and this version cannot run in any layer."""
    asked = {precision: None for reasons in refused.values() for precision in reasons if precision.unavailable}
    return [f"{precision} is left out of the space: {precision.unavailable}" for precision in asked]


def refusal_notes(refused: Mapping[str, Mapping[str, str]]) -> list[str]:
    """One sentence per precision that this device cannot run: in which kinds of layers, and why."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for kind, reasons in refused.items():
        for precision, reason in reasons.items():
            kinds.setdefault((precision, reason), []).append(kind)
    return [
        f"{precision} is left out of {' and '.join(found)} layers: {REFUSED}: {reason}"
        for (precision, reason), found in kinds.items()
    ]


def layers_json(
    layers: Sequence["Layer"],
    choices: Mapping[str, Sequence[Precision]],
    notes: Sequence[str] = (),
    refused: Refused = MappingProxyType({}),
) -> dict[str, Any]:
    """The versioned JSON form of `tuner layers --json`."""
    return {
        "format": FORMAT,
        "notes": list(notes),
        "layers": [
            {
                "name": layer.name,
                "kind": layer.kind,
                "shape": list(layer.shape),
                "params": layer.params,
                "flops": layer.flops,
                "executions": layer.executions,
                "searchable": layer.searchable,
                "reason": layer.reason,
                "precisions": [str(precision) for precision in choices.get(layer.name, ())],
                "refused": {str(precision): why for precision, why in refused.get(layer.name, {}).items()},
            }
            for layer in layers
        ],
    }


def _row(layer: "Layer", taken: Sequence[Precision], refused: Mapping[Precision, str]) -> Row:
    allowed = ", ".join(str(precision) for precision in taken if not precision.is_original)
    reasons = [layer.reason, *(f"{precision}: {reason}" for precision, reason in refused.items()), "not in this space"]
    text = allowed or f"original only: {next(filter(None, reasons))}"
    cells = (
        layer.name,
        layer.kind,
        "x".join(map(str, layer.shape)) or numbers.MISSING,
        numbers.amount(layer.params) if layer.params else numbers.MISSING,
        numbers.amount(layer.flops) if layer.flops else numbers.MISSING,
        str(layer.executions),
        text,
    )
    return Row(cells, "" if allowed else DIM)
