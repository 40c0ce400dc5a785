import pytest

import tuner
from search_spaces import Precision
from tests.search_bench import Notes, make_program
from tuner.diagnosis import Attempt, Finding, Probe
from tuner.search.spaces import resolve_space
from tuner.search.support import complete_probe, keep_probe, known_probe, refused_of
from tuner.store import Store

PROGRAM = make_program(2)
NOTHING = Probe(tool_version=tuner.__version__)
NO_I8 = Finding(operation="matmul", precision="i8/i8/i32", attempt=Attempt(refusal="crash: by SIGILL"))


class Device:
    """Runs everything but i8."""

    def __init__(self):
        self.tried = []

    def try_precision(self, operation, precision):
        self.tried.append((operation, str(precision)))
        return NO_I8.attempt if precision == Precision.parse("i8/i8/i32") else Attempt(effective="as requested")


@pytest.fixture
def asked():
    return resolve_space("cpu", PROGRAM).resolution


def test_only_what_layers_may_take_is_tried_and_each_once(asked):
    device, notes = Device(), Notes()
    probe = complete_probe(NOTHING, device, PROGRAM, asked, notes)
    assert device.tried == [("matmul", text) for text in ("bf16/bf16/f32", "f32/f32/f32", "i8/i8/i32")]
    assert notes.notes == ["Trying which of these precisions run here; what is found is kept for this device."]
    assert refused_of(probe, PROGRAM, asked) == {"matmul": {"i8/i8/i32": "crash: by SIGILL"}}


def test_what_is_known_is_not_tried_again(asked):
    device, notes = Device(), Notes()
    probe = complete_probe(NOTHING.merged([NO_I8]), device, PROGRAM, asked, notes)
    assert ("matmul", "i8/i8/i32") not in device.tried
    del device.tried[:], notes.notes[:]
    assert complete_probe(probe, device, PROGRAM, asked, notes) is probe
    assert device.tried == notes.notes == []


def test_what_cannot_run_is_no_choice_and_says_why():
    resolution = resolve_space("cpu", PROGRAM, {"matmul": {"i8/i8/i32": "crash: by SIGILL"}}).resolution
    assert list(map(str, resolution.choices["layer_0"])) == ["original", "f32/f32/f32", "bf16/bf16/f32"]
    for text in ("i8/i8/i32", "i8/i8/i32@static"):
        reason = resolution.refused["layer_1"][Precision.parse(text)]
        assert reason == "this device cannot run it: crash: by SIGILL"


def test_what_no_layer_asks_for_is_not_reported(asked):
    probe = NOTHING.merged([NO_I8, Finding(operation="gather", precision="i8/f32/f32", attempt=NO_I8.attempt)])
    assert set(refused_of(probe, PROGRAM, asked)) == {"matmul"}


def test_a_probe_is_kept_where_it_knows_more():
    with Store.open() as store:
        assert known_probe(store) == known_probe(None) == NOTHING
        keep_probe(store, NOTHING.merged([NO_I8]))
        assert known_probe(store).findings == (NO_I8,)
        keep_probe(store, NOTHING)
        assert known_probe(store).findings == (NO_I8,)
