"""Latency: the time of one call as a ratio to the baseline, measured in alternation with it.

On a shared machine absolute times drift by a factor of two within minutes while the ratio of two calls made side by side
hardly moves. So every candidate sample is divided by the baseline sample next to it, and the median of those ratios is
the statistic; the ratio of two medians would compare times taken under different conditions. The slow calls that p95 and
p99 are about are likewise told from a slow machine by the baseline's samples around them.

Nothing here knows JAX: a `Run` is any function that returns when its work is done, and the clock is handed in, so that
recorded noisy times can be replayed in a test.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.measurement import Latency

Run = Callable[[], object]
Clock = Callable[[], float]
Begin = Callable[[int], object]
Times = NDArray[np.float64]

RESAMPLES = 1000
_RESAMPLES_WHILE_MEASURING = 300
_MOST_CALLS = 1000
# So many calls leave one beyond the percentile; of fewer the slowest call would be taken for it.
_CALLS_FOR_P95 = 20
_CALLS_FOR_P99 = 100
# Samples of the baseline, on each side, that tell how fast the machine was at a call.
_AROUND = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """When to stop measuring.

    Attributes:
        width: relative width of the 95 % interval that is narrow enough.
        seconds: for one candidate; measuring goes on beyond them only until `pairs` are there.
        pairs: how many a measurement has at least when it runs out of time.
        least_pairs: below six pairs no distribution-free 95 % interval of a median exists, so none counts as narrow.
        sample_s: what one sample lasts at least; a shorter program is called several times, and the median call counts.
            A millisecond is ten thousand times the clock's resolution, and long enough for an interruption to be
            outvoted in a program that takes a tenth of it.
        least_s: for one candidate; a narrow interval is not the end before: slow calls and neighbors take time to show.
    """

    width: float = 0.02
    seconds: float = 3.0
    pairs: int = 10
    least_pairs: int = 6
    sample_s: float = 0.001
    least_s: float = 0.25


FULL_EFFORT = Effort()


def compare(
    baseline: Run,
    candidates: Sequence[Run],
    *,
    reference_ms: float | None = None,
    examples: int | None = None,
    effort: Effort = FULL_EFFORT,
    clock: Clock = time.perf_counter,
    seed: int = 0,
) -> list[Latency]:
    """The latency of every candidate, all measured in one interleaved round after round with the baseline.

    Args:
        baseline: returns when one call of the baseline is done; called once before, as a warm-up.
        candidates: the same for each candidate.
        reference_ms: the study's baseline in milliseconds; this run's own median when None.
        examples: per call, for the throughput.
        effort: when to stop.
        clock: monotonic seconds.
        seed: of the bootstrap.
    """
    times = in_turns([baseline, *candidates], effort=effort, clock=clock, seed=seed)
    return latencies(times, reference_ms=reference_ms, examples=examples, seed=seed)


def in_turns(
    runs: Sequence[Run],
    *,
    effort: Effort = FULL_EFFORT,
    clock: Clock = time.perf_counter,
    seed: int = 0,
    begin: Begin | None = None,
) -> Times:
    """Seconds of every call, by round, program and call.

    Args:
        runs: the programs; the first is the one that the others are held against.
        effort: when to stop.
        clock: monotonic seconds.
        seed: of the bootstrap.
        begin: called with the number of a program when its turn begins, to make room for it; one call that does not
            count follows.
    """
    turn = _Turn(runs, begin)
    # The same for all: the median of one call and that of five are different statistics of a skewed distribution.
    calls = max(_calls_per_sample(turn.of(index), effort.sample_s, clock) for index in range(len(runs)))
    # Sharing the baseline, n candidates get by with the time of (n + 1) / 2 pairs for as many pairs each.
    share = len(runs) / 2
    rounds: list[list[list[float]]] = []
    started = clock()
    check_at = max(effort.least_pairs, 1)
    while True:
        rounds.append(_one_round(turn, len(runs), calls, len(rounds), clock))
        elapsed = clock() - started
        if elapsed >= effort.seconds * share and len(rounds) >= effort.pairs:
            break
        if len(rounds) >= check_at:
            is_long = elapsed >= effort.least_s * share
            if is_long and all(_is_narrow(rounds, index, effort.width, seed) for index in range(1, len(runs))):
                break
            # Growing steps keep the bootstrap a small part of the time, even ones keep AB and BA in balance.
            check_at = 2 * (int(len(rounds) * 1.25) // 2 + 1)
    return np.asarray(rounds)


def latencies(
    times: Times, *, reference_ms: float | None = None, examples: int | None = None, seed: int = 0
) -> list[Latency]:
    """The latency of every program but the first in what `in_turns` measured."""
    baseline = times[:, 0]
    return [
        summarize(times[:, index], baseline, reference_ms, examples=examples, seed=seed)
        for index in range(1, times.shape[1])
    ]


def summarize(
    candidate_s: Times,
    baseline_s: Times,
    reference_ms: float | None = None,
    *,
    examples: int | None = None,
    seed: int = 0,
) -> Latency:
    """The latency that paired samples amount to: median of paired ratios, bootstrap 95 % interval, slowest calls.

    Args:
        candidate_s: seconds of each sample, or of each call of each sample.
        baseline_s: the same of the baseline.
        reference_ms: the study's baseline in milliseconds; the median of `baseline_s` when None.
        examples: per call, for the throughput.
        seed: of the bootstrap.
    """
    candidate, baseline = samples_of(candidate_s), samples_of(baseline_s)
    ratio, low, high = median_interval(candidate / baseline, seed)
    p10, median, p90 = np.percentile(baseline, [10, 50, 90])
    reference = float(median) * 1000 if reference_ms is None else reference_ms
    # Each call in units of what the baseline took around it, so that a machine that slows down makes no tail.
    relative = candidate_s.reshape(len(candidate), -1) / _around(baseline)[:, None]
    return Latency(
        ratio=ratio,
        low=low,
        high=high,
        milliseconds=ratio * reference,
        baseline_spread=float((p90 - p10) / median),
        pairs=len(baseline),
        p95_ms=_percentile(relative, 95, _CALLS_FOR_P95) * reference,
        p99_ms=_percentile(relative, 99, _CALLS_FOR_P99) * reference,
        throughput=math.nan if examples is None else 1000 * examples / (ratio * reference),
        calls=relative.size,
    )


def samples_of(calls_s: Times) -> Times:
    """Seconds of the median call of each sample: of several short ones, those that were interrupted do not count."""
    samples: Times = np.median(calls_s.reshape(len(calls_s), -1), axis=1)
    return samples


def baseline_latency(baseline_s: Times, reference_ms: float | None = None, examples: int | None = None) -> Latency:
    """The baseline measured against itself: a ratio of exactly one, and its own median time unless there is an older one."""
    return summarize(baseline_s, baseline_s, reference_ms, examples=examples)


def time_alone(run: Run, *, effort: Effort = FULL_EFFORT, clock: Clock = time.perf_counter) -> Times:
    """What `in_turns` gives, of one program: at least `effort.pairs` rounds, and then no longer than a third of its time."""
    calls = _calls_per_sample(run, effort.sample_s, clock)
    started = clock()
    samples: list[list[list[float]]] = []
    while len(samples) < effort.pairs or (clock() - started < effort.seconds / 3 and len(samples) < 10 * effort.pairs):
        samples.append([_call(run, calls, clock)])
    return np.asarray(samples)


def quick(run: Run, *, clock: Clock = time.perf_counter) -> float:
    """Seconds of the better of two calls; the caller has warmed up."""
    return min(_call(run, 2, clock))


def best_in_turns(runs: Sequence[Run], seconds: float, *, clock: Clock = time.perf_counter) -> list[float]:
    """Seconds of the best call of each, called in turns for that time together; at least one call each.

    In turns, because a busy machine may keep one of them waiting for all of a short stretch of its own.
    """
    started = clock()
    best = [min(_call(run, 1, clock)) for run in runs]
    while clock() - started < seconds:
        best = [min(shortest, *_call(run, 1, clock)) for shortest, run in zip(best, runs, strict=True)]
    return best


def median_interval(ratios: Times, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float, float]:
    """Median with its bootstrap percentile 95 % interval: (median, low, high)."""
    median = float(np.median(ratios))
    draws = np.random.default_rng(seed).integers(len(ratios), size=(resamples, len(ratios)))
    medians = np.median(ratios[draws], axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return median, min(float(low), median), max(float(high), median)


def order_of_round(index: int, size: int) -> list[int]:
    """Who runs when in round `index`: every second round is the one before reversed, and the start rotates.

    For two it is AB BA AB BA. Over the rounds each program meets every neighbor and every place, so that neither a steady
    drift nor a warm cache favors one.
    """
    start = index // 2 if size > 2 else 0
    order = [(start + place) % size for place in range(size)]
    return order[::-1] if index % 2 else order


class _Turn:
    """Whose turn it is, where programs have to make room for each other."""

    def __init__(self, runs: Sequence[Run], begin: Begin | None) -> None:
        self._runs = runs
        self._begin = begin
        self._last: int | None = None

    def of(self, index: int) -> Run:
        """The program of that number, ready to be timed."""
        if self._begin is not None and index != self._last:
            self._begin(index)
            self._runs[index]()
            self._last = index
        return self._runs[index]


def _one_round(turn: _Turn, size: int, calls: int, index: int, clock: Clock) -> list[list[float]]:
    seconds: list[list[float]] = [[] for _ in range(size)]
    for which in order_of_round(index, size):
        seconds[which] = _call(turn.of(which), calls, clock)
    return seconds


def _call(run: Run, calls: int, clock: Clock) -> list[float]:
    """Seconds of each of so many calls."""
    times = []
    for _ in range(calls):
        started = clock()
        run()
        times.append(clock() - started)
    return times


def _around(samples: Times) -> Times:
    """Per sample the median of those next to it."""
    return np.asarray(
        [np.median(samples[max(0, index - _AROUND) : index + _AROUND + 1]) for index in range(len(samples))]
    )


def _percentile(values: Times, percent: int, least: int) -> float:
    """NaN where there are too few values for one."""
    return float(np.percentile(values, percent)) if values.size >= least else math.nan


def _calls_per_sample(run: Run, sample_s: float, clock: Clock) -> int:
    """How many calls a sample needs: an odd number, so that its median is the time of one of them."""
    run()
    (shortest,) = _call(run, 1, clock)
    if shortest >= sample_s:
        return 1
    shortest = min(shortest, *_call(run, 4, clock))
    calls = math.ceil(sample_s / max(shortest, sample_s / _MOST_CALLS))
    return calls + 1 - calls % 2


def _is_narrow(rounds: list[list[list[float]]], index: int, width: float, seed: int) -> bool:
    times = np.median(np.asarray(rounds), axis=2)
    median, low, high = median_interval(times[:, index] / times[:, 0], seed, _RESAMPLES_WHILE_MEASURING)
    return high - low < width * median
