"""Policy: layer name -> assignment, for every layer of one program. Immutable, hashable, serializable."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from search_spaces import ORIGINAL, Precision
from tuner.scales import CalibratedOn, LayerScales

PLAIN = "plain"


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """Precision and kernel of one layer."""

    precision: Precision = ORIGINAL
    kernel: str = PLAIN

    def __str__(self) -> str:
        return str(self.precision) if self.kernel == PLAIN else f"{self.precision} [{self.kernel}]"


@dataclass(frozen=True, order=True, slots=True)
class Fusion:
    """One rewrite across layers or what lies between them.

    Attributes:
        kind: "affine": what the model multiplies the layer's result by and adds to it, per output channel, is packed
            with its weight. "pass": what the second layer reads is held in its integers from where the first hands it on.
        layers: the layers of the edge, in program order.
    """

    kind: str
    layers: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {' > '.join(self.layers)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramSignature:
    """What a policy must find in a program to fit it; the same for every batch size and JAX version."""

    # One (name, kind, weight shape) per layer, in program order; the shape is () for dot and input layers.
    layers: tuple[tuple[str, str, tuple[int, ...]], ...]
    # The inputs the program was captured with, as JSON: nested lists ("tuple"/"list") and dicts of
    # {"shape": [...], "dtype": "..."}; `prepare` traces with them when it is given no data.
    inputs: str
    # The layers of a scan over stacked weights are listed once per iteration.
    split_scans: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """Which precision and kernel every layer of one program runs in.

    Args:
        assignments: (layer name, assignment) for every layer, in program order.
        scales: (layer name, calibrated numbers) for layers that need them.
        calibrated_on: the examples that these come from; not part of the policy's identity.
        fusions: rewrites across layers, sorted.
        program: the program it was made for; not part of the policy's identity.
        provenance: JSON-able facts on where it was measured; not part of the policy's identity.
    """

    assignments: tuple[tuple[str, Assignment], ...]
    scales: tuple[tuple[str, LayerScales], ...] = ()
    calibrated_on: CalibratedOn | None = field(default=None, compare=False)
    program: ProgramSignature | None = field(default=None, compare=False)
    provenance: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)
    fusions: tuple[Fusion, ...] = ()

    def __getitem__(self, name: str) -> Assignment:
        for layer, assignment in self.assignments:
            if layer == name:
                return assignment
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.assignments)

    def __repr__(self) -> str:
        from tuner.report.points import policy_text

        return f"Policy({len(self)} layers: {policy_text(self)})"

    @property
    def names(self) -> tuple[str, ...]:
        """Layer names in program order."""
        return tuple(name for name, _ in self.assignments)

    @property
    def precisions(self) -> dict[str, Precision]:
        """Layer name -> precision, in program order."""
        return {name: assignment.precision for name, assignment in self.assignments}

    @property
    def is_original(self) -> bool:
        """True when every layer runs exactly as the user wrote it."""
        return all(assignment.precision.is_original for _, assignment in self.assignments)

    @property
    def hash(self) -> str:
        """Hex SHA-256 of assignments, scales and fusions: equal for equal policies, in every process."""
        assigned = [[name, str(a.precision), a.kernel] for name, a in self.assignments]
        scales = [[name, one.scale, one.zero_point, one.correction] for name, one in self.scales]
        content: list[Any] = [assigned, scales]
        if self.fusions:  # left out where there are none, as before there was such a thing
            content.append([[fusion.kind, *fusion.layers] for fusion in self.fusions])
        text = json.dumps(content, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def assign(self, name: str, assignment: Assignment) -> "Policy":
        """The same policy with one layer assigned anew.

        Raises:
            KeyError: no layer has that name.
        """
        if name not in self.names:
            raise KeyError(name)
        changed = tuple((layer, assignment if layer == name else a) for layer, a in self.assignments)
        return replace(self, assignments=changed)

    def save(self, path: str | Path, force: bool = False) -> Path:
        """Writes the policy file that `tuner.load_policy` reads; returns its path.

        Raises:
            PolicyError: the file exists and `force` is false, or it cannot be written.
        """
        from tuner.policy_file import save_policy

        return save_policy(self, path, force)

    def _repr_html_(self) -> str:
        from tuner.report.html import policy_html

        return policy_html(self)
