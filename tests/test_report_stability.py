import io
import json
from math import nan

from tests.test_stability import stability, watched
from tuner.report.stability import stability_json, write_stability
from tuner.stability import OUTPUTS, Counts, Watched

GOLDEN = """\
layer      what         format  smallest  largest  not finite  saturated  to zero  values  executions
a          weights      f16           -1        1           -          -     1.5%     20k           1
b          activations  f16           -1        1       0.06%      0.05%   <0.01%     20k           4
(outputs)  results      f32            -        -        100%          -        -      10           1

Layer 'b' (original) is the first that is not finite, in its execution 2 of 4: 10 of 20,000 activations (0.05 %) exceed \
the range of f16 (the largest is 10, and f16 ends at 65504).
"""
NOTHING_FINITE = Watched(
    layer=OUTPUTS,
    part="results",
    format="f32",
    smallest=nan,
    largest=nan,
    counts=Counts(count=10, non_finite=10, non_finite_given=10),
    executions=1,
)
FOUND = stability(
    watched("a", "weights", count=20_000, underflowed=300),
    watched("b", count=20_000, non_finite=12, saturated=10, underflowed=1, broke=(5, 2), executions=4),
    NOTHING_FINITE,
)


def text_of(found, **kwargs):
    file = io.StringIO()
    write_stability(found, file, **kwargs)
    return file.getvalue()


def test_golden():
    assert text_of(FOUND, width=200) == GOLDEN


def test_a_narrow_terminal_still_shows_what_went_wrong():
    titles = text_of(FOUND, width=60).splitlines()[0].split()
    assert {"layer", "what", "saturated", "zero"} <= set(titles)
    assert "executions" not in titles


def test_json_has_every_number_and_no_nan():
    form = json.loads(json.dumps(stability_json(FOUND), allow_nan=False))
    assert (form["format"], form["first_non_finite"], form["first_saturated"]) == (1, "b", "b")
    assert form["first_underflowed"] is None
    assert form["sentences"] == FOUND.sentences()
    a, b, outputs = form["watched"]
    assert (a["layer"], a["part"], a["underflowed"], a["broke_in_execution"]) == ("a", "weights", 300, None)
    assert (b["values"], b["non_finite"], b["saturated"], b["broke_in_execution"]) == (20_000, 12, 10, 2)
    assert (outputs["layer"], outputs["smallest"], outputs["largest"]) == (None, None, None)
