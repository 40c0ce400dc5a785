"""Stability: what every layer of a program saw in one run, and which went non-finite, saturated or underflowed first.

Plain values without any back end, so that reports can read them without JAX.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from search_spaces.formats import find_format

VALUES, WEIGHTS, LEFT, RIGHT, ACTIVATIONS, RESULTS = "values", "weights", "left", "right", "activations", "results"
# In the order in which a layer meets them.
PARTS = (WEIGHTS, VALUES, LEFT, RIGHT, ACTIVATIONS, RESULTS)
OUTPUTS = "(outputs)"

# Rounding small numbers to zero is what a narrow format does; a reader should know where it takes more than this share.
UNDERFLOWED_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """How many values of one array are not what they should be."""

    count: int
    non_finite: int = 0  # as its kernel sees them
    non_finite_given: int = 0  # before they were put into the format
    saturated: int = 0  # finite before, beyond what the format can hold
    underflowed: int = 0  # not zero before, zero in the format
    largest_given: float = 0.0  # largest finite magnitude before it was put into the format


@dataclass(frozen=True, kw_only=True, slots=True)
class Break:
    """The first execution in which an array had a value that was not finite."""

    execution: int  # from 1
    at: int  # when, among everything watched
    counts: Counts  # of that execution alone


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """One array of one layer over all its executions of one run, as the layer's kernel sees it."""

    layer: str
    part: str  # "weights", "activations", "left" and "right" of a product of two, "results", "values" of an input
    format: str  # what it is held in
    smallest: float  # of the finite values, as seen; NaN where there is none
    largest: float
    counts: Counts
    executions: int
    broke: Break | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Stability:
    """Everything watched in one run of a policy, in the order in which it was first executed."""

    watched: tuple[Watched, ...]
    precisions: Mapping[str, str]  # layer -> precision, as policies spell it

    def __repr__(self) -> str:
        import io

        from tuner.report.stability import write_stability

        text = io.StringIO()
        write_stability(self, text)
        return text.getvalue().rstrip()

    @property
    def first_non_finite(self) -> Watched | None:
        """What first held a NaN or an infinity."""
        broken = [(one.broke.at, number, one) for number, one in enumerate(self.watched) if one.broke is not None]
        return min(broken)[-1] if broken else None

    @property
    def first_saturated(self) -> Watched | None:
        """What first had finite values beyond the range of its format."""
        return next((one for one in self.watched if one.counts.saturated), None)

    @property
    def first_underflowed(self) -> Watched | None:
        """What first had half of its values, or more, turned to zero by its format."""
        return next((o for o in self.watched if o.counts.underflowed > UNDERFLOWED_SHARE * o.counts.count), None)

    @property
    def idle(self) -> list[str]:
        """Layers that did not run: a branch that was not taken, a loop without a trip."""
        ran = {one.layer for one in self.watched if one.part != WEIGHTS}
        return [layer for layer in self.precisions if layer not in ran]

    def besides(self, other: "Stability") -> "Stability":
        """Without what is not finite in another run either, such as scores that are minus infinity on purpose."""
        known = {(one.layer, one.part) for one in other.watched if one.broke}
        kept = tuple(one for one in self.watched if not (one.broke and (one.layer, one.part) in known))
        return Stability(watched=kept, precisions=self.precisions)

    def why_non_finite(self) -> str | None:
        """In one sentence which layer first was not finite, with the numbers; None when all are."""
        first = self.first_non_finite
        return None if first is None or first.broke is None else self._why(first, first.broke)

    def sentences(self) -> list[str]:
        """What a reader should know."""
        said = [self.why_non_finite() or "every layer's values are finite"]
        first = self.first_saturated
        if first is not None and first is not self.first_non_finite:
            said.append(f"layer {first.layer!r} is the first to saturate: {_beyond(first, first.counts)}")
        first = self.first_underflowed
        if first is not None:
            zeros = _share(first.counts.underflowed, first.counts, first.part)
            said.append(f"layer {first.layer!r} is the first to underflow: {zeros} become zero in {first.format}")
        if self.idle:
            said.append(f"not run in this call: {', '.join(map(repr, self.idle))}")
        return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in said]

    def _why(self, first: Watched, broke: Break) -> str:
        numbers = f"{_share(broke.counts.non_finite, broke.counts, first.part)} are NaN or infinite"
        if first.layer == OUTPUTS:
            return f"the outputs alone are not finite: {numbers}, through what is computed after {self._before(first)}"
        precision = self.precisions.get(first.layer, "original")
        when = f", in its execution {broke.execution} of {first.executions}" if first.executions > 1 else ""
        begins = f"layer {first.layer!r} ({precision}) is the first that is not finite{when}"
        if broke.counts.saturated:
            return f"{begins}: {_beyond(first, broke.counts)}"
        if first.part == RESULTS:
            return f"{begins}: {numbers}, though everything it reads is finite{self._reads(first)}"
        if first.part in (WEIGHTS, VALUES):
            return f"{begins}: {numbers} as given"
        return f"{begins}: {numbers} when it receives them, computed after {self._before(first)}"

    def _before(self, first: Watched) -> str:
        """The layer that gave a result before."""
        names = [one.layer for one in self.watched[: self.watched.index(first)] if one.part == RESULTS]
        return f"layer {names[-1]!r}" if names else "the inputs"

    def _reads(self, first: Watched) -> str:
        reads = [one.counts.largest_given for one in self.watched if one.layer == first.layer and one.part != RESULTS]
        return f" (at most {max(reads):.4g} in magnitude)" if reads else ""


def _beyond(one: Watched, counts: Counts) -> str:
    format = find_format(one.format)
    end = "" if format is None else f", and {one.format} ends at {format.max:.6g}"
    exceed = _share(counts.saturated, counts, one.part)
    return f"{exceed} exceed the range of {one.format} (the largest is {counts.largest_given:.4g}{end})"


def _share(number: int, counts: Counts, part: str) -> str:
    return f"{number:,} of {counts.count:,} {part} ({100 * number / max(counts.count, 1):.3g} %)"
