import jax
import numpy as np

from tuner.data import Split
from tuner.measure.confirm import confirm
from tuner.measure.contention import Watch
from tuner.measure.executable import compile_baseline, compile_cast
from tuner.measure.latency import Effort
from tuner.measure.quality import Scorer
from tuner.measure.shapes import Kind, ShapeTimer, programs_of
from tuner.measure.timing import Timer
from tuner.measurement import Confirmation, Failure
from tuner.metrics import find_metric

DEVICE = jax.devices()[0]
RNG = np.random.default_rng(0)
PARAMS = {"w": RNG.normal(size=(8, 4)).astype(np.float32)}
INPUTS = RNG.normal(size=(64, 8)).astype(np.float32)
SPLIT = Split((INPUTS,), (INPUTS @ PARAMS["w"]).argmax(1).astype(np.int32))


def apply(params, x):
    return x @ params["w"]


def confirmed(builds):
    baseline = compile_baseline(apply, PARAMS, (INPUTS[:16],), DEVICE)
    holdout = Scorer(SPLIT, 16, find_metric("top1"), baseline, DEVICE)
    kinds = [Kind(name="", weight=1.0, inputs=(INPUTS[:16],), scored=True)]

    def make_timer(timed, examples, reference_ms):
        effort = Effort(seconds=0.01, pairs=3)
        return Timer(timed, examples=examples, watch=Watch(None), reference_ms=reference_ms, effort=effort)

    timer = ShapeTimer(kinds, programs_of(baseline, kinds, DEVICE), make_timer, reference_ms=7.0, slow=3.0)
    return confirm(timer, [lambda build=build: programs_of(build(), kinds, DEVICE) for build in builds], holdout)


def test_failures_keep_their_place_among_the_confirmed():
    def fails():
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    def good():
        return compile_cast(apply, PARAMS, "bfloat16", (INPUTS[:16],), DEVICE)

    def not_a_number():
        return compile_baseline(lambda params, x: apply(params, x) * np.nan, PARAMS, (INPUTS[:16],), DEVICE)

    def breaks():
        def call(params, x):
            raise ValueError("no such operation")

        return compile_baseline(call, PARAMS, (INPUTS[:16],), DEVICE)

    outcomes = confirmed([fails, good, not_a_number, breaks, good])
    kinds = [outcome.cause if isinstance(outcome, Failure) else "confirmed" for outcome in outcomes]
    assert kinds == ["out of memory", "confirmed", "non-finite", "compile error", "confirmed"]
    assert isinstance(outcomes[1], Confirmation)
    assert outcomes[1].quality == outcomes[4].quality
    assert outcomes[1].latency.pairs == outcomes[4].latency.pairs
    assert outcomes[1].latency.milliseconds == 7.0 * outcomes[1].latency.ratio


def test_when_all_fail_nothing_is_timed():
    def fails():
        raise ValueError("no")

    assert [outcome.cause for outcome in confirmed([fails, fails])] == ["compile error", "compile error"]
