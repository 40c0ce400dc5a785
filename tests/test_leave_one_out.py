import io

import pytest

from tests.factories import make_point, make_policy
from tuner.errors import GoalMissed
from tuner.front import choose
from tuner.leave_one_out import leave_one_out
from tuner.report.policies import full_point_json, write_point

I8, BF16 = "i8/i8/i32", "bf16/bf16/f32"
BASE = make_point(0, 1.0, 0.0, 4000, label="baseline", policy=make_policy())
BOTH = make_point(1, 0.3, 0.05, 1000, policy=make_policy("original", I8, I8))
FIRST = make_point(2, 0.6, 0.041, 2500, policy=make_policy("original", I8))
SECOND = make_point(3, 0.5, 0.02, 1500, policy=make_policy("original", "original", I8))
OTHER = make_point(4, 0.4, 0.03, 2000, policy=make_policy("original", BF16, I8))


def test_a_layer_is_judged_by_the_policy_that_differs_in_it_alone():
    effects = leave_one_out(BOTH, [BASE, BOTH, FIRST, SECOND, OTHER])
    assert [(effect.layer, effect.trial) for effect in effects] == [("dense_0", 3), ("dense_1", 2)]
    assert effects[0].ratio == pytest.approx(0.2)
    assert effects[0].drop == pytest.approx(-0.03)
    assert effects[0].memory_bytes == 500
    assert str(effects[0].precision) == I8


def test_what_was_not_measured_is_not_guessed():
    assert leave_one_out(BOTH, [BASE, BOTH, OTHER]) == []
    assert leave_one_out(make_point(-1, policy=None), [BASE, BOTH]) == []


def test_a_missed_goal_names_the_layers_that_hold_it_back():
    alone = make_point(5, 0.9, 0.012, policy=make_policy("original", "original", BF16))
    nearest = make_point(6, 0.7, 0.011, policy=make_policy("original", I8, BF16))
    points = [BASE, BOTH, SECOND, FIRST, nearest, alone]
    with pytest.raises(GoalMissed) as caught:
        choose(points, max_drop="1%", baseline_quality=0.9)
    # dense_0 in int8: 0.03, 0.041 and -0.001 over three pairs; dense_1 in bf16: 0.012 and 0.011 - 0.041.
    assert (
        "the nearest is trial 6 (trial 6) at 0.7 of the baseline's latency with a drop of 0.011 [0.009, 0.013], "
        "held back most by dense_0 (i8/i8/i32 loses 0.03); allow a larger" in str(caught.value)
    )


def test_show_prints_them():
    out = io.StringIO()
    effects = leave_one_out(BOTH, [BASE, FIRST, SECOND])
    write_point(BOTH, out, width=100, effects=effects)
    text = out.getvalue()
    assert "One layer back to original, where that was measured too:" in text
    line = next(line for line in text.splitlines() if line.startswith("dense_0") and "0.2000" in line)
    # Two intervals of +-0.01 and two of +-0.002.
    assert line.split() == [
        "dense_0",
        "+0.2000",
        "(+0.1859..+0.2141)",
        "-0.0300",
        "(-0.0328..-0.0272)",
        "+500",
        "B",
        "3",
    ]
    assert full_point_json(BOTH, effects)["without_layer"][0]["layer"] == "dense_0"
    assert full_point_json(BOTH)["without_layer"] == []
