import contextlib
import os
import signal
import threading

import pytest

from tuner.search.interrupts import Interrupts


def press_control_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_waits_for_a_safe_place():
    reached = []
    with Interrupts() as interrupts:
        press_control_c()
        reached.append("the transaction's end")
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()
        interrupts.check()
    assert reached == ["the transaction's end"]


def test_cuts_in_at_once_where_that_is_allowed():
    def work() -> None:
        with interrupts.allowed():
            press_control_c()
            pytest.fail("went on")

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        work()


def test_a_press_before_is_noticed_on_entering():
    with Interrupts() as interrupts:
        press_control_c()
        with pytest.raises(KeyboardInterrupt), interrupts.allowed():
            pytest.fail("went on")


def test_a_second_press_never_waits():
    with Interrupts():
        press_control_c()
        with pytest.raises(KeyboardInterrupt):
            press_control_c()


def test_the_handler_is_restored():
    before = signal.getsignal(signal.SIGINT)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_does_nothing_outside_the_main_thread():
    problems = []

    def work() -> None:
        try:
            with Interrupts() as interrupts, interrupts.allowed():
                interrupts.check()
        except ValueError as problem:
            problems.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert problems == []


def test_a_press_that_is_dropped_on_its_way_counts_at_the_end_of_the_stretch():
    """As where it strikes in a destructor, or in the callback that JAX hangs on the garbage collector."""
    reached = []

    def work() -> None:
        with interrupts.allowed():
            with contextlib.suppress(KeyboardInterrupt):
                press_control_c()
            reached.append("the stretch's end")

    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt):
            work()
        assert reached == ["the stretch's end"]
        interrupts.check()  # once is enough
