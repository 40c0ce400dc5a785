import pytest

from tuner.measure.failures import failure_of
from tuner.measurement import COMPILE_ERROR, ERROR, OUT_OF_MEMORY, Costs


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 bytes."),
        MemoryError(),
        ValueError("CUDA_ERROR: out of memory"),
    ],
)
def test_running_out_of_memory_is_recognized(error):
    assert failure_of(error, ERROR).cause == OUT_OF_MEMORY


def test_other_errors_have_the_cause_of_their_stage():
    failure = failure_of(ValueError("bad\nlong explanation"), COMPILE_ERROR, Costs(compile_s=2.0))
    assert (failure.cause, failure.message) == (COMPILE_ERROR, "ValueError: bad")
    assert failure.costs.compile_s == 2.0


def test_endless_messages_are_cut():
    assert len(failure_of(ValueError("x" * 10_000), ERROR).message) < 600


def test_an_error_without_a_message_still_says_what_it_is():
    assert failure_of(KeyError(), ERROR).message == "KeyError: no message"
