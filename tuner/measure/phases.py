"""Phases: what a measuring process tells its parent about what it is doing, and for how long that may last."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """A stretch of work that begins: what it is, how long it may take, and which of several candidates it is about."""

    name: str
    seconds: float | None = None
    index: int | None = None


OnPhase = Callable[[Phase], object]
