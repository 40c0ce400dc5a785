"""KernelChoice: which kernels a study runs its layers with, and how those did in the whole program.

A kernel that wins alone may lose inside a program, where what comes before and after it could have been fused with the plain
one. So each is compared once more there, and dropped where it certainly loses.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """How long one policy takes as a ratio to another one, called in turns, with its 95 % interval."""

    ratio: float
    low: float
    high: float
    # Why one of the two does not run; the ratio is infinite where only the first does not, and NaN otherwise.
    problem: str = ""


def unknown(problem: str) -> Comparison:
    """What cannot be told, and why."""
    return Comparison(ratio=math.nan, low=math.nan, high=math.nan, problem=problem)


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelCheck:
    """What one kernel did in the whole program, against the plain one, in all layers that it won alone in one precision."""

    precision: str
    kernel: str
    layers: tuple[str, ...]
    compared: Comparison

    @property
    def loses(self) -> bool:
        """Whether it is certainly slower there, or does not run at all."""
        return self.compared.low > 1


@dataclass(frozen=True, kw_only=True, slots=True)
class FusionCheck:
    """What the fusions of one kind did in the whole program of one precision, against the same without them."""

    precision: str
    kind: str
    # How many there are.
    edges: int
    compared: Comparison

    @property
    def pays(self) -> bool:
        """Whether the program was measured to be no slower with them."""
        return self.compared.ratio <= 1


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelChoice:
    """The kernels and fusions of a study, which do not change while it lasts."""

    # Precision -> layer -> kernel, where it is not the plain one.
    chosen: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    checks: tuple[KernelCheck, ...] = ()
    # None: not settled.
    fusions: tuple[FusionCheck, ...] | None = None


def choice_to_json(choice: KernelChoice) -> dict[str, Any]:
    """The choice as the store keeps it."""
    return {
        "chosen": {precision: dict(kernels) for precision, kernels in choice.chosen.items()},
        "checks": [
            {
                "precision": check.precision,
                "kernel": check.kernel,
                "layers": list(check.layers),
                **_compared(check.compared),
                "dropped": check.loses,
            }
            for check in choice.checks
        ],
        "fusions": None
        if choice.fusions is None
        else [
            {
                "precision": check.precision,
                "kind": check.kind,
                "edges": check.edges,
                **_compared(check.compared),
                "dropped": not check.pays,
            }
            for check in choice.fusions
        ],
    }


def choice_from_json(value: Mapping[str, Any]) -> KernelChoice:
    """What `choice_to_json` was given."""
    return KernelChoice(
        chosen=MappingProxyType({p: MappingProxyType(dict(found)) for p, found in value["chosen"].items()}),
        checks=tuple(
            KernelCheck(
                precision=check["precision"],
                kernel=check["kernel"],
                layers=tuple(check["layers"]),
                compared=_comparison(check),
            )
            for check in value["checks"]
        ),
        fusions=None
        if value.get("fusions") is None  # absent where the study began before there was such a thing
        else tuple(
            FusionCheck(
                precision=check["precision"], kind=check["kind"], edges=check["edges"], compared=_comparison(check)
            )
            for check in value["fusions"]
        ),
    )


def _compared(compared: Comparison) -> dict[str, Any]:
    numbers = {name: _number(getattr(compared, name)) for name in ("ratio", "low", "high")}
    return {**numbers, "problem": compared.problem}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _comparison(check: Mapping[str, Any]) -> Comparison:
    missing = math.inf if check["dropped"] else math.nan
    ratio, low, high = (missing if check[name] is None else check[name] for name in ("ratio", "low", "high"))
    return Comparison(ratio=ratio, low=low, high=high, problem=check["problem"])
