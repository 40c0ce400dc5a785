"""What a search shows while it runs: one live line on a terminal, plain lines elsewhere, or a call per trial."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from tuner.drop import Drop
from tuner.report import numbers


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgressEvent:
    """The state of a search after one candidate."""

    done: int  # trials with an outcome, earlier runs of the study included
    total: int | None  # trials asked for, None when only time limits the search
    label: str  # of the candidate that just finished
    outcome: str  # what became of it, in a few words
    best_ratio: float | None  # fastest latency ratio inside the allowed drop
    max_drop: Drop
    front_size: int
    elapsed_s: float
    left_s: float | None  # estimate, None while unknown


class Progress(Protocol):
    """Where a search reports to."""

    def note(self, text: str) -> None:
        """A remark about the search as a whole."""

    def update(self, event: ProgressEvent) -> None:
        """A candidate has an outcome."""

    def close(self) -> None:
        """The search has ended, in whatever way."""


def make_progress(
    wanted: bool | Callable[[ProgressEvent], Any], file: TextIO | None = None, *, verbose: bool = False
) -> Progress:
    """The display for this process: none, a callable of the user's, live on a terminal, lines elsewhere."""
    file = file if file is not None else sys.stderr
    if wanted is False:
        return SilentProgress()
    if callable(wanted):
        return CallbackProgress(wanted)
    return LiveProgress(file, verbose=verbose) if file.isatty() else LineProgress(file)


def summary(event: ProgressEvent) -> str:
    """`12/60 trials, best 0.312 within 0.01, front 5, 1m20s left`."""
    trials = f"{event.done}/{event.total} trials" if event.total is not None else f"{event.done} trials"
    best = "none yet" if event.best_ratio is None else numbers.ratio(event.best_ratio)
    parts = [trials, f"best {best} within {event.max_drop}", f"front {event.front_size}"]
    if event.left_s is not None:
        parts.append(f"{numbers.seconds(event.left_s)} left")
    return ", ".join(parts)


def candidate(event: ProgressEvent) -> str:
    """`i8/i8/i32: 0.312, drop +0.0011`."""
    return f"{event.label}: {event.outcome}"


class SilentProgress:
    """Says nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def update(self, event: ProgressEvent) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class CallbackProgress:
    """Hands every event to a callable."""

    def __init__(self, callback: Callable[[ProgressEvent], Any]) -> None:
        self._callback = callback

    def note(self, text: str) -> None:
        """Nothing: a callable gets events only."""

    def update(self, event: ProgressEvent) -> None:
        """The event, as it is."""
        self._callback(event)

    def close(self) -> None:
        """Nothing."""


class LineProgress:
    """One line per candidate, for logs, pipes and notebooks."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def note(self, text: str) -> None:
        """The remark on a line of its own."""
        self._file.write(f"{text}\n")
        self._file.flush()

    def update(self, event: ProgressEvent) -> None:
        """What the candidate became, and where the search stands."""
        self.note(f"{candidate(event)} | {summary(event)}")

    def close(self) -> None:
        """Nothing: lines need no end."""


class LiveProgress:
    """A bar that stays on the terminal's last line, with remarks, and on request every candidate, scrolling above it."""

    def __init__(self, file: TextIO, *, verbose: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bar

        columns = (SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
        self._bar = Bar(*columns, console=Console(file=file, highlight=False), transient=True)
        self._verbose = verbose
        self._row = self._bar.add_task("starting", total=None)
        self._bar.start()

    def note(self, text: str) -> None:
        """The remark above the bar."""
        self._bar.console.print(text, markup=False)

    def update(self, event: ProgressEvent) -> None:
        """Moves the bar: by trials where their number is known, else by time."""
        if self._verbose:
            self.note(candidate(event))
        total, done = _share(event)
        self._bar.update(self._row, total=total, completed=done, description=summary(event))

    def close(self) -> None:
        """Takes the bar away."""
        self._bar.stop()


def _share(event: ProgressEvent) -> tuple[float | None, float]:
    """(total, completed) of the bar."""
    if event.total is not None:
        return float(event.total), float(min(event.done, event.total))
    if event.left_s is None:
        return None, 0.0
    return event.elapsed_s + event.left_s, event.elapsed_s
