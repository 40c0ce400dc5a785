"""Drop: how much quality a user is ready to give up."""

import math
import re
from dataclasses import dataclass
from decimal import Decimal

from tuner.errors import InputError

_PATTERN = re.compile(
    r"(?P<number>[0-9]*\.?[0-9]+(?:e[-+]?[0-9]+)?)\s*(?P<percent>%?)\s*(?P<relative>(?:rel)?)", re.ASCII
)
_REMEDY = "write 1% or 0.01 for one point of a metric in [0, 1], 1%rel for one percent of the baseline's value"


@dataclass(frozen=True, slots=True)
class Drop:
    """The largest allowed drop of the metric, in its own unit or relative to the baseline's value."""

    value: float
    relative: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value) + 0.0)  # -0.0 becomes 0.0, which prints as one
        if not math.isfinite(self.value) or self.value < 0:
            raise InputError(f"the allowed drop cannot be {self.value}: {_REMEDY}")

    @classmethod
    def parse(cls, text: "str | float | Drop") -> "Drop":
        """The drop that `1%`, `0.01`, `1%rel` or a plain number means.

        Raises:
            InputError: it is negative, not finite, or not a number.
        """
        if isinstance(text, Drop):
            return text
        if not isinstance(text, str):
            return cls(float(text))
        match = _PATTERN.fullmatch(text.strip().lower())
        if match is None:
            raise InputError(f"cannot read {text!r} as an allowed drop: {_REMEDY}")
        number = Decimal(match["number"]) / (100 if match["percent"] else 1)
        return cls(float(number), bool(match["relative"]))

    def allowed(self, baseline_value: float) -> float:
        """The allowed drop in the metric's own unit, given the baseline's value on the same examples."""
        return self.value * abs(baseline_value) if self.relative else self.value

    def __str__(self) -> str:
        if not self.relative:
            return repr(self.value)
        return f"{(Decimal(repr(self.value)) * 100).normalize():f}%rel"
