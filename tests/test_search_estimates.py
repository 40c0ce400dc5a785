import math

import numpy as np
import pytest

from search_spaces import ORIGINAL, Precision, SearchSpace
from tests.factories import make_latency, make_quality
from tests.search_bench import SPACE, make_program, make_table
from tuner.effect import Effect, Screening
from tuner.measurement import Measurement, Memory
from tuner.search.choices import ChoiceSpace
from tuner.search.estimates import make_estimates, reference_of
from tuner.search.predict import Predictor
from tuner.search.spaces import resolve_space

BASELINE = Measurement(
    latency=make_latency(1.0), quality=make_quality(0.0), memory=Memory(total_bytes=5000, weight_bytes=768)
)
I8 = "i8/i8/i32"
NOTHING = Screening()


def make_space(text=SPACE, layers=3):
    return ChoiceSpace.from_resolution(resolve_space(SearchSpace.parse(text, "test"), make_program(layers)).resolution)


def made(space, table, screening=NOTHING, layers=3, **more):
    fields = {"allowed_drop": 0.01, "larger_is_better": True, **more}
    return make_estimates(make_program(layers).layers, space, table, screening, BASELINE, **fields)


def predicted(space, estimate, **chosen):
    options = {name: [str(p) for p in space.choices[name]] for name in space.free}
    picks = [options[name].index(chosen.get(name, "original")) for name in options]
    return float(Predictor(options, estimate).predict(np.array([picks]))[0][0])


def test_as_written_everything_is_as_it_is():
    space = make_space()
    estimates = made(space, make_table(space.choices))
    assert predicted(space, estimates.latency) == pytest.approx(1.0)
    assert predicted(space, estimates.memory) == pytest.approx(5000)


def test_times_add_up_over_what_the_baseline_takes():
    space = make_space()
    estimates = made(space, make_table(space.choices))
    total = max(BASELINE.latency.milliseconds, 3.0)
    assert predicted(space, estimates.latency, layer_1=I8) == pytest.approx(1.0 - 0.7 / total)


def test_weights_are_counted_in_their_format():
    space = make_space()
    estimates = made(space, make_table(space.choices))
    assert predicted(space, estimates.memory, layer_0=I8, layer_2="bf16/bf16/f32") == pytest.approx(5000 - 192 - 128)


def test_errors_add_up_in_squares_and_what_was_not_screened_is_as_elsewhere():
    space = make_space()
    effects = {
        "layer_0": {I8: Effect(error=0.03, kl=None, examples=8)},
        "layer_1": {I8: Effect(error=0.04, kl=None, examples=8)},
    }
    estimates = made(space, make_table(space.choices), Screening(effects=effects))
    assert math.exp(predicted(space, estimates.fidelity, layer_0=I8, layer_1=I8)) == pytest.approx(0.05)
    assert math.exp(predicted(space, estimates.fidelity, layer_2=I8)) == pytest.approx(0.04)
    assert predicted(space, estimates.quality, layer_0=I8) < predicted(space, estimates.quality)
    losses = made(space, make_table(space.choices), Screening(effects=effects), larger_is_better=False)
    assert predicted(space, losses.quality, layer_0=I8) > predicted(space, losses.quality)


def test_without_screening_formats_say_which_is_coarser_and_no_number_is_claimed():
    space = make_space()
    estimates = made(space, make_table(space.choices))
    assert estimates.fidelity is None
    losses = [predicted(space, estimates.quality, layer_1=text) for text in ("original", "bf16/bf16/f32", I8)]
    assert losses == sorted(losses, reverse=True)
    assert len(set(losses)) == 3
    assert predicted(space, estimates.quality, layer_1="f32/f32/f32") == losses[0]
    assert estimates.of(["memory", "quality"]) == [estimates.memory, estimates.quality]


def test_layers_of_a_group_count_together():
    grouped = make_space(SPACE + '[[groups]]\nname = "pair"\nlayers = "layer_[01]"\n')
    estimates = made(grouped, make_table(grouped.choices))
    assert predicted(grouped, estimates.memory, layer_0=I8) == pytest.approx(5000 - 2 * 192)


def test_what_could_not_run_is_slow_and_what_was_not_timed_is_as_written():
    space = make_space()
    table = make_table(space.choices)
    int8 = Precision.parse(I8)
    times = {**table.times, f"layer_0 {int8} plain": math.nan}
    del times[f"layer_1 {int8} plain"]
    table = type(table)(times=times, signatures=table.signatures, kernels=table.kernels)
    estimates = made(space, table)
    written = estimates.latency.costs["layer_0"][str(ORIGINAL)]
    assert estimates.latency.costs["layer_0"][I8] == pytest.approx(3 * written)
    assert estimates.latency.costs["layer_1"][I8] == pytest.approx(written)


def test_beyond_the_reference_nothing_is_worth_anything():
    assert reference_of(["latency"], BASELINE, 0.01, True) == [1.02]
    latency, quality, memory = reference_of(["latency", "quality", "memory"], BASELINE, 0.01, True)
    assert latency > 1.2
    assert BASELINE.quality.value - 0.02 < quality < BASELINE.quality.value - 0.01
    assert memory == pytest.approx(5100)
    assert reference_of(["quality"], BASELINE, 0.01, False)[0] > BASELINE.quality.value + 0.01
