import os

import pytest

from tuner.measure import usage
from tuner.measure.usage import allowed_cpus, read_usage

STAT = """\
cpu  400 0 100 900 0 0 0 50 0 0
cpu0 300 10 90 400 5 1 2 30 7 0
cpu1 100 0 10 500 0 0 0 20 0 0
cpu10 900 0 0 0 0 0 0 0 0 0
intr 12345
"""


@pytest.fixture
def books(tmp_path, monkeypatch):
    def write(text):
        (tmp_path / "stat").write_text(text)
        return tmp_path / "stat"

    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    return write


def test_only_the_cpus_that_may_be_used_count(books):
    # user, nice, system and interrupts are busy; what guests take is part of user
    assert usage._read_stat(frozenset({0}), books(STAT)) == pytest.approx((4.03, 0.30))
    assert usage._read_stat(frozenset({0, 1}), books(STAT)) == pytest.approx((5.13, 0.50))


@pytest.mark.parametrize("text", ["", "cpu0 0 0 0 0 0 0 0 0 0 0\n", "cpu0 1 2\n", "cpu0 a b c d e f g h\n"])
def test_books_that_say_nothing_are_none(books, text):
    assert usage._read_stat(frozenset({0}), books(text)) is None


def test_without_books_the_load_is_left(monkeypatch, tmp_path):
    monkeypatch.setattr(usage, "_STAT", tmp_path / "nowhere")
    monkeypatch.setattr(usage._read_stat, "__defaults__", (tmp_path / "nowhere",))
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 0.0, 0.0))
    now = read_usage()
    assert (now.busy_s, now.stolen_s, now.load) == (None, None, 1.5)


def test_working_shows_in_the_books():
    before = read_usage()
    assert before.cpus == len(allowed_cpus()) >= 1
    while (now := read_usage()).own_s - before.own_s < 0.05:
        sum(range(1000))
    assert now.wall_s > before.wall_s
