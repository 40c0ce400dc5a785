"""Budgets: how many trials and how much time a search may take, and how much time and memory a candidate."""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tuner.errors import InputError

DEFAULT_SECONDS = 600.0
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)\s*h)?\s*(?:(\d+(?:\.\d+)?)\s*m(?:in)?)?\s*(?:(\d+(?:\.\d+)?)\s*s?)?")
_SIZES = {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?b)?")
_REMEDY = "give a positive time such as 5m, 90s or 1h30m"


def parse_budget(budget: str | float, what: str = "budget") -> float:
    """Seconds of a duration: `5m`, `90s`, `1h30m`, or a number of seconds.

    Raises:
        InputError: it is zero, negative or unreadable.
    """
    if isinstance(budget, str):
        text = budget.strip().lower()
        match = _DURATION.fullmatch(text)
        if text.startswith("-"):
            raise InputError(f"the {what} {budget!r} is negative; {_REMEDY}")
        if match is None or not any(match.groups()):
            raise InputError(f"cannot read the {what} {budget!r}; {_REMEDY}")
        seconds = sum(float(part or 0) * unit for part, unit in zip(match.groups(), _UNITS.values(), strict=True))
    else:
        seconds = float(budget)
    if not math.isfinite(seconds) or seconds <= 0:
        problem = "zero" if seconds == 0 else "negative" if seconds < 0 else "not a time"
        raise InputError(f"the {what} {budget!r} is {problem}; {_REMEDY}")
    return seconds


def parse_size(size: str | int) -> int:
    """Bytes of a size: `8GB`, `500MB`, or a number of bytes.

    Raises:
        InputError: it is no such thing, or nothing.
    """
    match = _SIZE.fullmatch(str(size).strip().lower())
    count = int(float(match[1]) * _SIZES[match[2] or "b"]) if match else 0
    if isinstance(size, bool) or count < 1:
        raise InputError(f"the memory limit {size!r} is not a size; give one such as 8GB or 500MB")
    return count


def check_trials(trials: int) -> int:
    """The number of trials, at least one.

    Raises:
        InputError: it is zero, negative or no whole number.
    """
    if isinstance(trials, bool) or not isinstance(trials, int):
        raise InputError(f"the number of trials {trials!r} is not a whole number; give 1 or more")
    if trials < 1:
        problem = "zero" if trials == 0 else "negative"
        raise InputError(f"the number of trials {trials} is {problem}; give 1 or more (the baseline is the first)")
    return trials


def read_count(text: str, option: str) -> int:
    """A whole number of at least one, as typed behind an option.

    Raises:
        InputError: it is not.
    """
    try:
        count = int(text)
    except ValueError:
        raise InputError(f"{option} {text!r} is not a whole number; give 1 or more") from None
    if count < 1:
        problem = "zero" if count == 0 else "negative"
        raise InputError(f"{option} {text} is {problem}; give 1 or more")
    return count


@dataclass(slots=True)
class Budget:
    """Counts down trials and time; either may be open."""

    trials: int | None
    seconds: float | None
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)
    # Seconds per trial of this run, the part of the estimate that is known only while running.
    _durations: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the search began."""
        return self.clock() - self.started

    def note_trial(self, seconds: float) -> None:
        """Remember how long a trial took."""
        self._durations.append(seconds)

    @property
    def typical(self) -> float:
        """Seconds of a usual trial of this run, 0 before the first."""
        return sorted(self._durations)[len(self._durations) // 2] if self._durations else 0.0

    def allows(self, done: int, confirmations: int = 0) -> bool:
        """True when another trial may begin; the first always may: it is the baseline, which is measured already.

        Args:
            done: trials that the study has.
            confirmations: front members to be measured again at the end, which costs about a trial each; up to half of
                the time is kept for them.
        """
        if self.trials is not None and done >= self.trials:
            return False
        if self.seconds is None or done == 0:
            return True
        kept = min(confirmations * self.typical, self.seconds / 2)
        return self.elapsed < self.seconds - kept

    def left(self, done: int) -> float | None:
        """Estimated seconds until the search ends, None when nothing can be said yet."""
        estimates = []
        if self.seconds is not None:
            estimates.append(max(0.0, self.seconds - self.elapsed))
        if self.trials is not None and self._durations:
            estimates.append(max(0, self.trials - done) * self.typical)
        return min(estimates, default=None)
