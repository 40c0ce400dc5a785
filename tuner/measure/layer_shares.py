"""What share of a program's time each layer has: its operations, alone, called in turns with the whole program.

In turns, because a time taken earlier, when the machine was faster or slower, is no share of one taken now.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tuner.measure.kernel_table import compile_alone, layers_in, signature_of
from tuner.policy import Assignment, Policy
from tuner.program import Program
from tuner.program.steps import Site

Run = Callable[[], object]
# An operation as its layer runs it.
_Part = tuple[str, Assignment]

_ROUNDS = 9
_LEAST_ROUNDS = 3
# Operations per round: the whole program is called once with so many, and as many sets of operands are held at a time.
_TOGETHER = 8
# Calls shorter than this are repeated.
_SAMPLE_S = 0.002
_MOST_REPEATS = 9


def layer_shares(
    shapes: Sequence[tuple[float, Program]], calls: Sequence[Run], budget_s: float, policy: Policy | None = None
) -> dict[str, float]:
    """Layer name -> its share of the program; those that there is no time for are missing.

    Args:
        shapes: how often each kind of call counts, and its program.
        calls: the compiled program at each of them.
        budget_s: seconds that this may take.
        policy: what the program runs; None: it is as written.
    """
    ends = time.perf_counter() + budget_s
    seconds: dict[str, float] = {}
    missing: set[str] = set()
    whole = 0.0
    for (weight, program), call in zip(shapes, calls, strict=True):
        operations = [
            (layer.name, (signature_of(site), Assignment() if policy is None else policy[layer.name]), site)
            for _, layer, found in layers_in([(weight, program)])
            for site in found
        ]
        shares, baseline_s = _operation_shares({part: site for _, part, site in operations}, call, ends)
        whole += weight * baseline_s
        for name, part, site in operations:
            if part not in shares:
                missing.add(name)
            took = weight * baseline_s * site.executions * shares.get(part, 0.0)
            seconds[name] = seconds.get(name, 0.0) + took
    return {name: value / whole for name, value in seconds.items() if name not in missing}


def _operation_shares(sites: dict[_Part, Site], whole: Run, ends: float) -> tuple[dict[_Part, float], float]:
    """(operation -> time of one execution as a share of the program's, the program's seconds)."""
    found: dict[_Part, float] = {}
    programs: list[float] = []
    for group in _groups(list(sites)):
        if found and time.perf_counter() > ends:
            break
        runs = [whole, *(compile_alone(sites[part], part[1]) for part in group)]
        repeats = [_repeats(run) for run in runs]
        rounds: list[list[float]] = []
        while len(rounds) < _ROUNDS and (len(rounds) < _LEAST_ROUNDS or time.perf_counter() < ends):
            order = range(len(runs))[:: -1 if len(rounds) % 2 else 1]
            samples = {place: _sample(runs[place], repeats[place]) for place in order}
            rounds.append([samples[place] for place in range(len(runs))])
        times = np.asarray(rounds)
        ratios = np.median(times[:, 1:] / times[:, :1], axis=0)
        found.update(zip(group, map(float, ratios), strict=True))
        programs.append(float(np.median(times[:, 0])))
    return found, float(np.median(programs)) if programs else _seconds(whole)


def _groups(parts: list[_Part]) -> Iterator[list[_Part]]:
    for start in range(0, len(parts), _TOGETHER):
        yield parts[start : start + _TOGETHER]


def _repeats(run: Run) -> int:
    """How often a call is repeated so that an interruption does not decide: an odd number, one for long calls."""
    run()
    return min(_MOST_REPEATS, 1 + 2 * int(_SAMPLE_S / 2 / max(_seconds(run), 1e-6)))


def _sample(run: Run, repeats: int) -> float:
    """Seconds of the median call."""
    return float(np.median([_seconds(run) for _ in range(repeats)]))


def _seconds(run: Run) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
