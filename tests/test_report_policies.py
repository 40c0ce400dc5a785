import io
import json
from dataclasses import replace

from tests.factories import make_confirmation, make_latency, make_measurement, make_point, make_policy
from tuner.measurement import ALTERNATE
from tuner.policy import Fusion
from tuner.report.policies import full_point_json, write_difference, write_point, write_policy
from tuner.scales import CalibratedOn

QUIET = replace(make_latency(0.3), p95_ms=1.31, p99_ms=2.0, throughput=213_333.3, calls=120)
CONTENDED = replace(make_latency(0.31), contended="others kept 1.0 of 2 CPUs busy", baseline=ALTERNATE)
POINT = make_point(
    2,
    policy=make_policy("original", "i8/i8/i32"),
    measurement=replace(make_measurement(0.3, effective={"dense_0": "as requested"}), latency=QUIET),
    confirmation=replace(make_confirmation(0.31, 0.02), latency=CONTENDED),
)

GOLDEN = """\
trial         2
label         trial 2
on the front  no
latency       0.300 (0.290..0.310), 1.20 ms
slow calls    p95 1.31 ms, p99 2.00 ms, of 120 calls
throughput    213k examples/s
quality       0.9000
drop          0.0000 (-0.0020..+0.0020), 5000 examples, mcnemar
fidelity      relative error 0.01
memory        1 kB
weights       500 B
confirmed     latency 0.310 (0.300..0.320), holdout 0.8800, drop +0.0200 (+0.0180..+0.0220), 5000 examples; \
contended: others kept 1.0 of 2 CPUs busy

layer    precision  kernel  ran as requested
input    original   plain   -
dense_0  i8/i8/i32  plain   yes
dense_1  original   plain   -
"""


def test_what_calibrated_a_point_is_shown():
    policy = replace(POINT.policy, calibrated_on=CalibratedOn(examples=256, split="search", fingerprint="0123456789ab"))
    assert "calibrated    on 256 examples of the search split (0123456789ab)\n" in text_of(
        replace(POINT, policy=policy)
    )


def text_of(point):
    file = io.StringIO()
    write_point(point, file, width=120)
    return file.getvalue()


def test_golden():
    assert text_of(POINT) == GOLDEN


def test_how_a_candidate_was_timed_is_said_where_it_matters():
    text = text_of(replace(POINT, measurement=replace(POINT.measurement, latency=CONTENDED)))
    assert (
        "timed         in blocks of calls, weights moved in between: intervals are wider than of single calls" in text
    )
    assert "contended     others kept 1.0 of 2 CPUs busy" in text
    assert "slow calls" not in text
    assert "throughput" not in text


def test_json_has_what_is_known_of_both_measurements():
    form = json.loads(json.dumps(full_point_json(POINT), allow_nan=False))
    assert (form["latency_p95_ms"], form["latency_p99_ms"], form["latency_calls"]) == (1.31, 2.0, 120)
    assert (form["throughput"], form["baseline"], form["contended"]) == (213_333.3, "resident", None)
    confirmed = form["confirmation"]
    assert (confirmed["baseline"], confirmed["latency_p95_ms"]) == ("alternate", None)
    assert confirmed["contended"] == "others kept 1.0 of 2 CPUs busy"


def test_fusions_are_named_below_the_layers_and_where_they_differ():
    fused = replace(make_policy(), fusions=(Fusion("affine", ("a",)), Fusion("pass", ("a", "b"))))
    file = io.StringIO()
    write_policy(fused, {}, file)
    assert file.getvalue().endswith("Fused: affine a, pass a > b.\n")
    file = io.StringIO()
    write_difference([], file, fusions=(fused.fusions, fused.fusions[1:]))
    assert file.getvalue().splitlines()[1:] == ["Fused only before: affine a."]
