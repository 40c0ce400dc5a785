"""Watch: who looks on while a rewritten program runs; control flow is run as it is, what is watched goes through it."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tuner.program.steps import Site, Step


class Watch(Protocol):
    """Who looks on while a program runs; the plan must be a watched one, so that every layer is seen."""

    def received(self, position: int, given: Any, kept: Any) -> None:
        """An input as it came, and as the program reads it."""
        ...

    def operation(self, site: Site, operands: Sequence[Any], packed: Mapping[str, Any] | None, result: Any) -> None:
        """A layer's operation on what it read; None stands for a packed weight, which is shown beside."""
        ...

    def inside(self, step: Step) -> "Watch | None":
        """Who looks on inside a control-flow step; with None its results are shown instead."""
        ...

    def passed(self, step: Step, results: Sequence[Any]) -> None:
        """What a control-flow step gave that nobody looked into."""
        ...

    def finished(self, outputs: Sequence[Any]) -> None:
        """The flat outputs."""
        ...

    def carried(self) -> list[Any]:
        """Arrays that it takes from one iteration, or branch, to what comes after."""
        ...

    def resume(self, carried: Sequence[Any]) -> None:
        """Goes on with such arrays."""
        ...
