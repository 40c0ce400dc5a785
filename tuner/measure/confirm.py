"""Confirm: the chosen candidates once more, all against each other and on examples that the search never saw."""

from collections.abc import Callable, Sequence

from tuner.errors import TunerError
from tuner.measure.executable import Executable
from tuner.measure.failures import failure_of
from tuner.measure.quality import GivenUp, NonFinite, Scored, Scorer
from tuner.measure.shapes import Programs, ShapeTimer, Timings
from tuner.measure.spread import Spread
from tuner.measurement import COMPILE_ERROR, ERROR, LOSER, NON_FINITE, Confirmation, Failure

Call = Callable[[], object]


def confirm(
    timer: ShapeTimer,
    builds: Sequence[Callable[[], Programs]],
    holdout: Scorer,
    *,
    spread: Callable[[Executable], Executable | Spread] = lambda executable: executable,
    before_timing: Call = lambda: None,
) -> list[Confirmation | Failure]:
    """One confirmation or failure per candidate, in order.

    All are timed in the same rounds, in rotating order, each paired with the baseline of its round; so their ratios
    are comparable with each other as well.

    Args:
        timer: times against the baseline.
        builds: compile the candidates.
        holdout: the holdout split, scored by the baseline.
        spread: how a candidate is scored.
        before_timing: called when all are compiled and scored.
    """
    outcomes: list[tuple[Programs, Scored] | Failure] = []
    for build in builds:
        outcome = _score(build, holdout, spread)
        if not isinstance(outcome, Failure):
            timer.make_room(outcome[0])
        outcomes.append(outcome)
    before_timing()
    timed = [outcome[0] for outcome in outcomes if not isinstance(outcome, Failure)]
    timings = iter(timer.compare(timed, confirming=True))
    return [outcome if isinstance(outcome, Failure) else _confirmed(outcome[1], next(timings)) for outcome in outcomes]


def _confirmed(scored: Scored, timings: Timings) -> Confirmation:
    return Confirmation(latency=timings.latency, shapes=timings.shapes, quality=scored.quality, metrics=scored.metrics)


def _score(
    build: Callable[[], Programs], holdout: Scorer, spread: Callable[[Executable], Executable | Spread]
) -> tuple[Programs, Scored] | Failure:
    """A candidate ready to be timed and its quality on the holdout split."""
    cause = COMPILE_ERROR
    try:
        programs = build()
        cause = ERROR
        for timed in programs.timed:
            timed.call()
        scored = holdout.measure(spread(programs.scored))
    except TunerError:  # a mistake of the caller, not of the candidate
        raise
    except Exception as error:  # noqa: BLE001  whatever it throws is this candidate's failure
        return failure_of(error, cause)
    if isinstance(scored, NonFinite):
        return Failure(cause=NON_FINITE, message=scored.message, costs=programs.costs)
    if isinstance(scored, GivenUp):  # nobody asked for that here
        return Failure(cause=LOSER, message=f"given up after {scored.examples} examples", costs=programs.costs)
    return programs, scored
