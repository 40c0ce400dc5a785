"""Goals: what a search may stop at, such as `latency<=0.5x,drop<=1%`, and when it stops because nothing is gained."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.drop import Drop
from tuner.errors import InputError
from tuner.measurement import ROUNDING, Failure, Measurement, broken_constraints
from tuner.search.budget import parse_size
from tuner.search.hypervolume import hypervolume

_TERM = re.compile(r"(latency|drop|memory)\s*<=\s*(\S+)")
_GRAMMAR = "write one or more of latency<=0.5x, drop<=1% and memory<=0.4x (or memory<=100MB), separated by commas"
# A search stalls when its hypervolume has grown by less than this share over so many trials.
STALLED_SHARE = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What a candidate must reach; `str` prints what `parse` reads. None where nothing is asked."""

    latency: float | None = None  # ratio to the baseline
    drop: Drop | None = None
    memory: float | None = None  # ratio to the baseline
    memory_bytes: int | None = None

    @classmethod
    def parse(cls, text: "str | Goal") -> "Goal":
        """The goal that a text means.

        Raises:
            InputError: it is none.
        """
        if isinstance(text, Goal):
            return text
        found: dict[str, float | int | Drop] = {}
        for term in str(text).split(","):
            match = _TERM.fullmatch(term.strip())
            if match is None or match[1] in found or (match[1] == "memory" and "memory_bytes" in found):
                raise InputError(f"cannot read the goal {text!r}: {term.strip()!r} is not understood here; {_GRAMMAR}")
            name, value = match[1], match[2]
            if name == "drop":
                found["drop"] = Drop.parse(value)
            elif name == "memory" and not value.endswith("x"):
                found["memory_bytes"] = parse_size(value)
            else:
                found[name] = parse_ratio(value, f"{name} of the goal")
        return cls(**found)  # type: ignore[arg-type]  # each under its own name

    def __str__(self) -> str:
        parts = [
            None if self.latency is None else f"latency<={self.latency:g}x",
            None if self.drop is None else f"drop<={self.drop}",
            None if self.memory is None else f"memory<={self.memory:g}x",
            None if self.memory_bytes is None else f"memory<={self.memory_bytes}B",
        ]
        return ",".join(part for part in parts if part)

    def is_met(self, measured: Measurement | Failure, baseline: Measurement) -> bool:
        """True when a candidate reaches all that is asked, and keeps the constraints."""
        if isinstance(measured, Failure) or broken_constraints(measured):
            return False
        total = measured.memory.total_bytes
        drop = None if self.drop is None else self.drop.allowed(baseline.quality.value)
        return (
            (self.latency is None or measured.latency.ratio <= self.latency)
            and (drop is None or measured.quality.drop <= drop + ROUNDING)
            and (self.memory is None or total <= self.memory * baseline.memory.total_bytes)
            and (self.memory_bytes is None or total <= self.memory_bytes)
        )


def parse_ratio(text: str, what: str) -> float:
    """A share of the baseline: `0.5x`.

    Raises:
        InputError: it is none, or not above zero.
    """
    try:
        ratio = float(text.strip().lower().removesuffix("x"))
    except ValueError:
        ratio = float("nan")
    if not 0 < ratio < float("inf"):
        raise InputError(f"the {what} {text!r} is no share of the baseline; give one such as 0.5x")
    return ratio


class Stall:
    """Tells when a search gains nothing any more.

    The rule: over the last `patience` trials of this run the hypervolume of what was measured, up to the reference, grew
    by less than a thousandth.

    Args:
        reference: per objective, all made small.
        patience: trials; 0 never stalls.
    """

    def __init__(self, reference: Sequence[float], patience: int) -> None:
        self._reference = np.array(reference, float)
        self.patience = patience
        self._points: list[Sequence[float]] = []
        self._history: list[float] = []

    def add(self, values: Sequence[float] | None, *, counts: bool = True) -> None:
        """Takes a trial into account.

        Args:
            values: per objective, made small; None for a trial without a measurement.
            counts: False for what was measured before this run.
        """
        if values is not None and all(np.isfinite(values)):
            self._points.append(values)
        if counts and self.patience:
            self._history.append(hypervolume(np.array(self._points, float), self._reference) if self._points else 0.0)

    @property
    def stalled(self) -> bool:
        """True when the last trials gained nothing to speak of."""
        if not self.patience or len(self._history) <= self.patience:
            return False
        before, now = self._history[-1 - self.patience], self._history[-1]
        return now - before <= STALLED_SHARE * before
