import json
from dataclasses import replace

from search_spaces import Precision
from tests.factories import NAN
from tuner.diagnosis import Attempt, Finding, Probe, Speed, plain_text, probe_from_json, probe_to_json

BF16, F16 = Precision.parse("bf16/bf16/f32"), Precision.parse("f16/f16/f32")
SPEED = Speed(ratio=0.5, low=0.4, high=0.6, kernel="plain", effective="as requested", milliseconds=2.0)
RUNS = Finding(
    operation="matmul",
    precision="bf16/bf16/f32",
    attempt=Attempt(effective="as requested"),
    speeds={"small": SPEED, "batch 1": replace(SPEED, low=NAN)},
    failures={"medium": "out of memory: no room"},
)
REFUSED = Finding(operation="matmul", precision="f16/f16/f32", attempt=Attempt(refusal="compile error: no such type"))
PROBE = Probe(tool_version="1.0", findings=(RUNS, REFUSED), taken="2026-01-02T03:04:05+00:00")


def test_a_probe_comes_back_as_it_was():
    form = json.loads(json.dumps(probe_to_json(PROBE), allow_nan=False))
    read = probe_from_json(form, "1.0")
    assert repr(read) == repr(replace(PROBE, findings=read.findings))
    assert read.findings[1] == REFUSED
    speeds = dict(read.findings[0].speeds)
    assert speeds["small"] == SPEED
    assert speeds["batch 1"].low != speeds["batch 1"].low
    assert dict(read.findings[0].failures) == RUNS.failures


def test_what_another_version_found_out_is_asked_again():
    assert probe_from_json(probe_to_json(PROBE), "1.1") == Probe(tool_version="1.1")
    assert probe_from_json(None, "1.0") == Probe(tool_version="1.0")
    assert probe_from_json({"format": 99}, "1.0").findings == ()


def test_what_is_refused_is_refused_for_every_kind_of_layer_that_the_operation_stands_for():
    assert PROBE.refused() == {
        "matmul": {"f16/f16/f32": "compile error: no such type"},
        "dot": {"f16/f16/f32": "compile error: no such type"},
    }
    gather = replace(REFUSED, operation="gather")
    assert set(replace(PROBE, findings=(gather,)).refused()) == {"embedding"}


def test_what_a_layer_hands_on_makes_no_difference():
    narrow = Precision.parse("bf16/bf16/f32->bf16")
    assert plain_text(narrow) == plain_text(BF16) == "bf16/bf16/f32"
    assert PROBE.find("matmul", narrow) is RUNS
    assert PROBE.find("convolution", narrow) is None


def test_a_later_finding_takes_the_place_of_an_earlier_one():
    later = replace(REFUSED, attempt=Attempt(effective="unknown"))
    assert PROBE.merged([later]).findings == (RUNS, later)
    assert PROBE.merged([replace(later, operation="gather")]).find("matmul", F16) is REFUSED


def test_a_probe_is_complete_when_all_that_runs_was_timed_or_failed():
    assert PROBE.complete
    assert not replace(PROBE, findings=(replace(RUNS, speeds={}), REFUSED)).complete
    assert not Probe(tool_version="1.0").complete
