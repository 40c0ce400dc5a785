import sys

import pytest

from search_spaces import Precision
from tuner.diagnosis import Attempt, Finding, Probe, Speed
from tuner.errors import MeasuringStopped
from tuner.measure import probing
from tuner.measure.probing import IsolatedProber, LocalProber, make_prober, time_all, try_all
from tuner.measurement import Failure

BF16, F16, I8 = (Precision.parse(text) for text in ("bf16/bf16/f32", "f16/f16/f32", "i8/i8/i32"))
WANTED = {"matmul": (BF16, I8), "gather": (F16,)}
QUIET = lambda text: None


def isolated(crashing=""):
    return IsolatedProber([sys.executable, "-m", "tests.fake_probe_child", crashing])


def probed(prober, **settings):
    found = try_all(prober, Probe(tool_version="1.0"), WANTED, QUIET)
    return time_all(prober, found, **{"seconds": 60, "say": QUIET} | settings)


def test_a_precision_that_ends_the_process_is_a_row_and_no_end():
    prober = isolated("i8/i8/i32,f16/f16/f32:time")
    assert prober.unlimited == "nobody limits a fake"
    found = probed(prober)
    prober.close()
    bf16, i8, f16 = found.findings
    assert [set(finding.speeds) for finding in (bf16, i8, f16)] == [{"small", "medium", "batch 1"}, set(), set()]
    assert i8.attempt.refusal.startswith("crash: its process was ended by SIGABRT while")
    assert set(found.refused()) == {"matmul", "dot"}
    assert set(f16.failures) == {"small", "medium", "batch 1"}
    assert f16.failures["small"].startswith("crash: its process was ended by SIGABRT")
    assert found.complete


def test_a_process_that_does_not_start_is_said():
    with pytest.raises(MeasuringStopped, match="no process can be started to probe in: its process ended itself with"):
        IsolatedProber([sys.executable, "-c", "raise SystemExit(3)"])


class Fake:
    """Every shape takes a second of its clock."""

    unlimited = None

    def __init__(self):
        self.now = 0.0
        self.asked = []

    def try_precision(self, operation, precision):
        self.asked.append((operation, str(precision)))
        return Attempt(refusal="" if precision != F16 else "no")

    def time_precision(self, operation, precision, shape):
        self.now += 1
        self.asked.append((operation, str(precision), shape))
        if shape == "medium":
            return Failure(cause="out of memory", message="no room")
        return Speed(ratio=0.5, low=0.4, high=0.6, kernel="plain", effective="unknown", milliseconds=1.0)

    def close(self):
        self.asked.append("closed")


def test_what_the_time_does_not_reach_is_timed_the_next_time():
    prober = Fake()
    found = probed(prober, seconds=3, clock=lambda: prober.now)
    assert [set(finding.speeds) for finding in found.findings] == [{"small", "batch 1"}, {"small"}, set()]
    assert not found.complete
    del prober.asked[:]
    found = try_all(prober, found, WANTED, QUIET)
    found = time_all(prober, found, seconds=60, say=QUIET, clock=lambda: prober.now)
    text = "i8/i8/i32"
    assert prober.asked == [("matmul", text, "batch 1"), ("matmul", str(BF16), "medium"), ("matmul", text, "medium")]
    assert found.findings[1].failures == {"medium": "out of memory: no room"}
    assert found.complete


def test_one_is_told_what_is_tried():
    said = []
    try_all(Fake(), Probe(tool_version="1.0"), WANTED, said.append)
    assert said[0] == "trying matmul in bf16/bf16/f32"
    finding = Finding(operation="matmul", precision=str(BF16), attempt=Attempt())
    time_all(Fake(), Probe(tool_version="1.0", findings=(finding,)), seconds=60, say=said.append)
    assert said[-1] == "timing matmul in bf16/bf16/f32, medium"


@pytest.mark.slow
def test_the_real_process_probes_this_device():
    prober = make_prober()
    try:
        assert prober.try_precision("matmul", I8) == LocalProber("").try_precision("matmul", I8)
        speed = prober.time_precision("gather", Precision.parse("i8/f32/f32"), "small")
        assert isinstance(speed, Speed)
        assert prober.try_precision("matmul", Precision.parse("tf32/tf32/f32")).refusal.startswith("not available yet")
    finally:
        prober.close()
        prober.close()


def test_where_only_one_process_has_the_device_it_is_probed_here(monkeypatch):
    monkeypatch.setattr(probing, "refusal", lambda platform: "a TPU belongs to one process at a time")
    prober = make_prober()
    assert isinstance(prober, LocalProber)
    assert prober.unlimited == "a TPU belongs to one process at a time"

    def fail(*_):
        raise RuntimeError("RESOURCE_EXHAUSTED: too large")

    monkeypatch.setattr(probing.probe, "time_precision", fail)
    assert prober.time_precision("matmul", BF16, "medium").cause == "out of memory"
    prober.close()
