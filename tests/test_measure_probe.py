import numpy as np
import pytest

from search_spaces import Precision
from tuner.diagnosis import CONVOLUTION, GATHER, MATMUL
from tuner.measure import probe
from tuner.measure.probe import precisions_to_probe, time_precision, try_precision

BF16, I8 = Precision.parse("bf16/bf16/f32"), Precision.parse("i8/i8/i32")


def test_every_preset_is_probed_and_what_is_known_and_not_built_yet():
    wanted = precisions_to_probe()
    assert list(wanted) == [MATMUL, CONVOLUTION, GATHER]
    assert {"bf16/bf16/f32", "i8/i8/i32", "f16/f16/f16", "i4/bf16/f32"} <= set(map(str, wanted[MATMUL]))
    assert {"bf16/bf16/f32", "i8/i8/i32"} <= set(map(str, wanted[CONVOLUTION]))
    assert {"bf16/f32/f32", "i8/f32/f32"} <= set(map(str, wanted[GATHER]))


@pytest.mark.parametrize(
    ("operation", "precision"), [(MATMUL, "i8/i8/i32"), (CONVOLUTION, "bf16/bf16/f32"), (GATHER, "i8/f32/f32")]
)
def test_what_runs_here_says_what_ran(operation, precision):
    attempt = try_precision(operation, Precision.parse(precision))
    assert attempt.refusal == ""
    assert attempt.effective == "as requested" or attempt.effective.startswith("different: ")


def test_what_this_version_cannot_run_is_refused_with_the_reason():
    assert try_precision(MATMUL, Precision.parse("tf32/tf32/f32")).refusal.startswith("not available yet: tf32")
    assert try_precision(GATHER, Precision.parse("f32")).refusal == "the table is float32 already"


def test_what_the_compiler_refuses_is_refused_with_its_words(monkeypatch):
    def refuse(*_):
        raise NotImplementedError("no such type on this device\nand so on")

    monkeypatch.setattr(probe, "compile_policy", refuse)
    expected = "compile error: NotImplementedError: no such type on this device"
    assert try_precision(MATMUL, BF16).refusal == expected


@pytest.mark.parametrize(
    ("distort", "words"),
    [
        (lambda outputs: outputs * np.nan, "its results are NaN or infinite"),
        (lambda outputs: -outputs, "its results are wrong, by 200%"),
    ],
)
def test_what_gives_wrong_results_does_not_run(monkeypatch, distort, words):
    class Distorted:
        def __init__(self, executable):
            self.executable = executable

        def __call__(self, inputs):
            return distort(self.executable(inputs))

    compiled = probe._compile
    monkeypatch.setattr(probe, "_compile", lambda *given: Distorted(compiled(*given)))
    assert try_precision(MATMUL, BF16).refusal == words


def test_an_operation_is_timed_against_the_one_as_written():
    speed = time_precision(MATMUL, I8, "small")
    assert 0 < speed.low <= speed.ratio <= speed.high
    assert speed.kernel == "plain"
    assert speed.effective == "as requested"
    assert speed.milliseconds > 0


def test_a_single_row_gets_the_fastest_of_its_kernels(monkeypatch):
    tried = []
    compiled = probe._compile
    monkeypatch.setattr(probe, "_compile", lambda *given: tried.append(given[2]) or compiled(*given))
    assert time_precision(MATMUL, BF16, "batch 1").kernel in tried
    assert set(tried) == {"plain", "transposed", "padded"}


def test_what_takes_long_is_called_twice_and_no_more(monkeypatch):
    monkeypatch.setattr(probe, "_LONG_S", 0.0)
    monkeypatch.setattr(probe, "in_turns", lambda *_, **__: pytest.fail("timed at length"))
    speed = time_precision(GATHER, Precision.parse("bf16/f32/f32"), "small")
    assert speed.low == speed.ratio == speed.high > 0
