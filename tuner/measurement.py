"""Measurement: quality, latency and memory of one candidate, each with its interval and how it was obtained.

Plain values without any back end, so that the store, the front and the reports can read them without JAX.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

# Where the baseline's weights are while a candidate is timed.
RESIDENT = "resident"
ALTERNATE = "alternate"

# 0.98 - 0.97 is a little more than 0.01 in floating point, and meant to be it.
ROUNDING = 1e-9


class _Measured:
    """Numbers of which some may be missing, as NaN: equal where the same are missing and all others are equal.

    Left to itself a dataclass says so before Python 3.13, and by chance: there NaN equals no NaN, not even itself.
    """

    __slots__ = ()

    def _key(self) -> tuple[object, ...]:
        values = (getattr(self, one.name) for one in fields(self))  # type: ignore[arg-type]  # of a dataclass
        return tuple("missing" if value != value else value for value in values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Measured) and type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Latency(_Measured):
    """Time of one call as a ratio to the baseline measured in alternation with it."""

    ratio: float  # median of paired candidate / baseline times
    low: float  # bootstrap 95 % interval of that median
    high: float
    milliseconds: float  # ratio x the study's reference baseline
    baseline_spread: float  # (p90 - p10) / median of the baseline times in the same run
    pairs: int
    # What follows is missing in what older versions measured.
    p95_ms: float = math.nan  # of single calls, on the scale of `milliseconds`; NaN under 20 calls
    p99_ms: float = math.nan  # NaN under 100 calls
    throughput: float = math.nan  # examples per second, at the median
    calls: int = 0  # timed, each pair holding one or more
    baseline: str = RESIDENT  # "alternate": pairs are blocks of calls, with the weights moved in between
    contended: str = ""  # what disturbed the measurement to the end, empty where nothing did


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapeLatency:
    """Latency of one of several kinds of call, and how often it counts in their sum."""

    latency: Latency
    weight: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """The user's metric on one split, and its drop against the baseline on the same examples."""

    value: float
    drop: float  # baseline minus candidate, in the metric's own unit; positive is worse
    drop_low: float  # 95 % interval of the drop
    drop_high: float
    examples: int
    method: str  # "mcnemar" or "paired bootstrap"
    fidelity: float  # relative error ||outputs - baseline outputs|| / ||baseline outputs||, label-free


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class FurtherMetric(_Measured):
    """A metric besides the one that quality is in, on the same split, and how far it may drop."""

    value: float
    drop: float  # how much worse than the baseline, in the metric's own unit
    drop_low: float  # 95 % interval of the drop
    drop_high: float
    method: str
    allowed: float  # the largest drop inside its constraint; NaN where it is only shown

    @property
    def holds(self) -> bool:
        """False when it drops by more than its constraint allows."""
        return math.isnan(self.allowed) or self.drop <= self.allowed + ROUNDING


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """Bytes of the executable, and of the packed weights that are part of its arguments."""

    total_bytes: int  # arguments + temporaries + outputs, without the inputs
    weight_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Where one trial's seconds went."""

    prepare_s: float = 0.0
    trace_s: float = 0.0
    compile_s: float = 0.0
    quality_s: float = 0.0
    latency_s: float = 0.0
    compile_cache: str = "off"  # "hit", "miss" or "off": the persistent compilation cache


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One candidate, compiled, run, scored and timed on this device."""

    latency: Latency
    quality: Quality
    memory: Memory
    costs: Costs = field(default_factory=Costs)
    # Per layer that is not `original`: "as requested", "different: <what ran>" or "unknown".
    effective: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    # The task's other metrics, by name.
    metrics: Mapping[str, FurtherMetric] = field(default_factory=lambda: MappingProxyType({}))
    # Where several kinds of call are timed, each by name; `latency` is then of their weighted sum.
    shapes: Mapping[str, ShapeLatency] = field(default_factory=lambda: MappingProxyType({}))


# Certain losers: told to Optuna as PRUNED.
SLOW = "slow"
LOSER = "certain loser"
# Failures: told to Optuna as FAIL.
COMPILE_ERROR = "compile error"
NON_FINITE = "non-finite"
OUT_OF_MEMORY = "out of memory"
ERROR = "error"
DEADLINE = "deadline"
CRASH = "crash"  # its process ended: by a signal, or because native code or the program itself ended it


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Why a candidate has no measurement; it can never enter a front."""

    cause: str
    message: str
    layer: str | None = None
    costs: Costs = field(default_factory=Costs)

    @property
    def pruned(self) -> bool:
        """True for a candidate that ran and certainly loses, False for one that failed."""
        return self.cause in (SLOW, LOSER)


@dataclass(frozen=True, kw_only=True, slots=True)
class Confirmation:
    """A second, independent measurement: one interleaved round of all front members, and the holdout split."""

    latency: Latency
    quality: Quality  # on the holdout split
    metrics: Mapping[str, FurtherMetric] = field(default_factory=lambda: MappingProxyType({}))  # there, too
    shapes: Mapping[str, ShapeLatency] = field(default_factory=lambda: MappingProxyType({}))


def broken_constraints(measured: Measurement | Confirmation) -> dict[str, FurtherMetric]:
    """The further metrics that drop by more than their constraints allow."""
    return {name: metric for name, metric in measured.metrics.items() if not metric.holds}


def reference_ms(baseline: Measurement) -> float | dict[str, float]:
    """Milliseconds of one call of the baseline, or by name those of each kind of call."""
    by_name = {name: shape.latency.milliseconds for name, shape in baseline.shapes.items()}
    return by_name or baseline.latency.milliseconds
