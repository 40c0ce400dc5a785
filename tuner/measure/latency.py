"""Latency: the time of one call as a ratio to the baseline, measured in alternation with it.

On a shared machine absolute times drift by a factor of two within minutes while the ratio of two calls made side by side
hardly moves. So every candidate sample is divided by the baseline sample next to it, and the median of those ratios is
the statistic; the ratio of two medians would compare times taken under different conditions.

Nothing here knows JAX: a `Run` is any function that returns when its work is done, and the clock is handed in, so that
recorded noisy times can be replayed in a test.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.measurement import Latency

Run = Callable[[], object]
Clock = Callable[[], float]
Times = NDArray[np.float64]

RESAMPLES = 1000
_RESAMPLES_WHILE_MEASURING = 300
_MOST_CALLS = 1000


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
    """

    width: float = 0.02
    seconds: float = 3.0
    pairs: int = 10
    least_pairs: int = 6
    sample_s: float = 0.001


FULL_EFFORT = Effort()


def compare(
    baseline: Run,
    candidates: Sequence[Run],
    *,
    reference_ms: float | None = None,
    effort: Effort = FULL_EFFORT,
    clock: Clock = time.perf_counter,
    seed: int = 0,
) -> list[Latency]:
    """The latency of every candidate, all measured in one interleaved round after round with the baseline.

    Args:
        baseline: returns when one call of the baseline is done; called once before, as a warm-up.
        candidates: the same for each candidate.
        reference_ms: the study's baseline in milliseconds; this run's own median when None.
        effort: when to stop.
        clock: monotonic seconds.
        seed: of the bootstrap.
    """
    runs = [baseline, *candidates]
    # The same for all: the median of one call and that of five are different statistics of a skewed distribution.
    calls = max(_calls_per_sample(run, effort.sample_s, clock) for run in runs)
    # Sharing the baseline, n candidates get by with the time of (n + 1) / 2 pairs for as many pairs each.
    limit = effort.seconds * len(runs) / 2
    rounds: list[list[float]] = []
    started = clock()
    check_at = max(effort.least_pairs, 1)
    while True:
        rounds.append(_one_round(runs, calls, len(rounds), clock))
        out_of_time = clock() - started >= limit and len(rounds) >= effort.pairs
        if out_of_time:
            break
        if len(rounds) >= check_at:
            if all(_is_narrow(rounds, index, effort.width, seed) for index in range(1, len(runs))):
                break
            # Growing steps keep the bootstrap a small part of the time, even ones keep AB and BA in balance.
            check_at = 2 * (int(len(rounds) * 1.25) // 2 + 1)
    times = np.asarray(rounds)
    return [summarize(times[:, index], times[:, 0], reference_ms, seed) for index in range(1, len(runs))]


def summarize(candidate_s: Times, baseline_s: Times, reference_ms: float | None = None, seed: int = 0) -> Latency:
    """The latency that paired sample times amount to: median of paired ratios, bootstrap 95 % interval."""
    ratio, low, high = median_interval(candidate_s / baseline_s, seed)
    p10, median, p90 = np.percentile(baseline_s, [10, 50, 90])
    return Latency(
        ratio=ratio,
        low=low,
        high=high,
        milliseconds=ratio * (float(median) * 1000 if reference_ms is None else reference_ms),
        baseline_spread=float((p90 - p10) / median),
        pairs=len(baseline_s),
    )


def baseline_latency(baseline_s: Times, reference_ms: float | None = None) -> Latency:
    """The baseline measured against itself: a ratio of exactly one, and its own median time unless there is an older one."""
    return summarize(baseline_s, baseline_s, reference_ms)


def time_alone(run: Run, *, effort: Effort = FULL_EFFORT, clock: Clock = time.perf_counter) -> Times:
    """Seconds per call in at least `effort.pairs` samples, for at most a third of `effort.seconds` once those are there."""
    calls = _calls_per_sample(run, effort.sample_s, clock)
    started = clock()
    samples: list[float] = []
    while len(samples) < effort.pairs or (clock() - started < effort.seconds / 3 and len(samples) < 10 * effort.pairs):
        samples.append(_sample(run, calls, clock))
    return np.asarray(samples)


def quick(run: Run, *, clock: Clock = time.perf_counter) -> float:
    """Seconds of the better of two calls; the caller has warmed up."""
    return min(_sample(run, 1, clock) for _ in range(2))


def best_in_turns(runs: Sequence[Run], seconds: float, *, clock: Clock = time.perf_counter) -> list[float]:
    """Seconds of the best call of each, called in turns for that time together; at least one call each.

    In turns, because a busy machine may keep one of them waiting for all of a short stretch of its own.
    """
    started = clock()
    best = [_sample(run, 1, clock) for run in runs]
    while clock() - started < seconds:
        best = [min(shortest, _sample(run, 1, clock)) for shortest, run in zip(best, runs, strict=True)]
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


def _one_round(runs: Sequence[Run], calls: int, index: int, clock: Clock) -> list[float]:
    seconds = [0.0] * len(runs)
    for which in order_of_round(index, len(runs)):
        seconds[which] = _sample(runs[which], calls, clock)
    return seconds


def _sample(run: Run, calls: int, clock: Clock) -> float:
    """Seconds of the median call: of several short ones, those that were interrupted do not count."""
    times = []
    for _ in range(calls):
        started = clock()
        run()
        times.append(clock() - started)
    return statistics.median(times)


def _calls_per_sample(run: Run, sample_s: float, clock: Clock) -> int:
    """How many calls a sample needs: an odd number, so that its median is the time of one of them."""
    run()
    shortest = _sample(run, 1, clock)
    if shortest >= sample_s:
        return 1
    shortest = min(shortest, *(_sample(run, 1, clock) for _ in range(4)))
    calls = math.ceil(sample_s / max(shortest, sample_s / _MOST_CALLS))
    return calls + 1 - calls % 2


def _is_narrow(rounds: list[list[float]], index: int, width: float, seed: int) -> bool:
    times = np.asarray(rounds)
    median, low, high = median_interval(times[:, index] / times[:, 0], seed, _RESAMPLES_WHILE_MEASURING)
    return high - low < width * median
