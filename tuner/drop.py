"""Drop: how much quality a search may give up."""

import math
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from numbers import Real
from typing import Any

from tuner.errors import InputError

_GRAMMAR = "write 1% or 0.01 (points of the metric) or 1%rel (of the baseline's value)"
_RELATIVE = "rel"


@dataclass(frozen=True, slots=True)
class Drop:
    """An allowed loss of quality; `str` prints what `parse` reads.

    Args:
        value: 0.01 is one point of a metric in [0, 1], or with `relative` one percent of the baseline's value.
        relative: whether `value` is a share of the baseline's value.

    Raises:
        InputError: the value is negative, above 100 % or no number.
    """

    value: float
    relative: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value) + 0.0)  # -0.0 becomes 0.0, which prints as one
        if not math.isfinite(self.value):
            raise InputError(f"max drop {self.value!r} is not a finite number; {_GRAMMAR}")
        if self.value < 0:
            raise InputError(
                f"max drop {self} is negative; a drop is a loss of quality, so give zero or more, such as 1%"
            )
        if self.value > 1:
            raise InputError(
                f"max drop {self} is above 100%; give at most 100%, and for one point of the metric 1% or 0.01"
            )

    @classmethod
    def parse(cls, text: "str | float | Drop") -> "Drop":
        """The drop that `1%`, `0.01`, `1%rel` or a number means.

        Raises:
            InputError: it is none of these, negative or above 100 %.
        """
        if isinstance(text, Drop):
            return text
        given: Any = text  # whoever calls from Python may give anything
        if isinstance(given, bool) or not isinstance(given, Real | str):
            raise InputError(f"max drop {text!r} is a {type(given).__name__}; {_GRAMMAR}")
        if not isinstance(given, str):
            return cls(float(given))
        body = "".join(given.lower().split())
        relative = body.endswith(_RELATIVE)
        body = body.removesuffix(_RELATIVE)
        percent = body.endswith("%")
        try:
            number = Decimal(body.removesuffix("%"))
        except InvalidOperation:
            raise InputError(f"max drop {text!r} cannot be read; {_GRAMMAR}") from None
        # In decimal, so that 7% is the same number as 0.07.
        return cls(float(number / 100 if percent else number), relative)

    def __str__(self) -> str:
        percent = (Decimal(repr(self.value)) * 100).normalize()
        return f"{percent:f}%{_RELATIVE if self.relative else ''}"

    def allowed(self, baseline_value: float) -> float:
        """The largest allowed drop in the metric's own unit.

        Args:
            baseline_value: the quality of the program as written.
        """
        return self.value * abs(baseline_value) if self.relative else self.value
