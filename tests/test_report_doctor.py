import io
import json
from dataclasses import replace

from tests.test_diagnosis import PROBE, RUNS, SPEED
from tuner.diagnosis import Attempt, Check, Diagnosis, Finding, Probe
from tuner.report.doctor import diagnosis_json, write_diagnosis

I8 = Finding(
    operation="convolution",
    precision="i8/i8/i32",
    attempt=Attempt(effective="different: i32 x i32 -> i32"),
    speeds={"small": replace(SPEED, ratio=1.234), "medium": replace(SPEED, effective="different: f32 x f32 -> f32")},
)
DIAGNOSIS = Diagnosis(
    name="Test CPU, 2 threads",
    fingerprint={
        "platform": "cpu",
        "kind": "Test CPU (avx2)",
        "jaxlib": "0.10.2",
        "xla_flags": "",
        "threads": "2",
        "matmul_precision": "None",
        "x64": "False",
        "promotion": "standard",
    },
    probe=PROBE.merged([I8]),
    checks=(Check("lock", True, "free"), Check("memory limit", False, "candidates have none: no such call")),
    notes=("Not everything was timed in 25 s; the same command goes on.",),
)

GOLDEN = """\
Test CPU, 2 threads
  platform          cpu
  kind              Test CPU (avx2)
  jaxlib            0.10.2
  threads           2
  x64               False
  matmul precision  None
  dtype promotion   standard
  XLA flags         none

Time of one operation as a ratio to it as written in float32: with its plain kernel, a single row with the fastest.
In brackets what ran, where that is not what ran on the smallest example. Probed 2026-01-02T03:04:05+00:00.

operation    precision      ran as requested                     small             medium  batch 1
matmul       bf16/bf16/f32  yes                                  0.500             failed    0.500
convolution  i8/i8/i32      no: i32 x i32 -> i32  1.234 (as requested)  0.500 (f32 x f32)        -

Does not run here, and no search proposes it:
  matmul in f16/f16/f32: compile error: no such type

Failed when it was timed:
  matmul in bf16/bf16/f32, medium: out of memory: no room

measuring needs  here
lock             yes   free
memory limit     no    candidates have none: no such call

Not everything was timed in 25 s; the same command goes on.
"""


def text_of(diagnosis):
    file = io.StringIO()
    write_diagnosis(diagnosis, file)
    return file.getvalue()


def test_golden():
    assert text_of(DIAGNOSIS) == GOLDEN


def test_a_device_that_was_not_timed_says_so():
    runs = replace(RUNS, speeds={}, failures={})
    text = text_of(replace(DIAGNOSIS, probe=Probe(tool_version="1.0", findings=(runs,))))
    assert "\nWhat runs here; nothing is timed.\n" in text
    assert "Does not run here" not in text
    assert "Failed" not in text


def test_json_is_as_published():
    form = json.loads(json.dumps(diagnosis_json(DIAGNOSIS), allow_nan=False))
    assert form["format"] == 1
    assert form["device"] == {"name": "Test CPU, 2 threads", **DIAGNOSIS.fingerprint}
    assert (form["probed"], form["tool_version"]) == ("2026-01-02T03:04:05+00:00", "1.0")
    runs, refused, i8 = form["precisions"]
    assert (runs["operation"], runs["precision"], runs["refusal"]) == ("matmul", "bf16/bf16/f32", None)
    assert runs["ratios"]["small"] == {
        "ratio": 0.5,
        "low": 0.4,
        "high": 0.6,
        "kernel": "plain",
        "effective": "as requested",
        "milliseconds": 2.0,
    }
    assert runs["ratios"]["batch 1"]["low"] is None
    assert runs["failures"] == {"medium": "out of memory: no room"}
    assert (refused["refusal"], refused["effective"], refused["ratios"]) == ("compile error: no such type", None, {})
    assert i8["effective"] == "different: i32 x i32 -> i32"
    assert form["checks"][1] == {"name": "memory limit", "ok": False, "text": "candidates have none: no such call"}
    assert form["notes"] == list(DIAGNOSIS.notes)
