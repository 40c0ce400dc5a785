import io

from tuner.drop import Drop
from tuner.search.progress import LineProgress, LiveProgress, ProgressEvent, SilentProgress, make_progress, summary


def event(**changes: object) -> ProgressEvent:
    fields = {
        "done": 12,
        "total": 60,
        "label": "i8/i8/i32",
        "outcome": "0.312, drop +0.0011",
        "best_ratio": 0.312,
        "max_drop": Drop(0.01),
        "front_size": 5,
        "elapsed_s": 20.0,
        "left_s": 80.0,
    }
    return ProgressEvent(**fields | changes)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_summary_says_trials_best_front_and_time_left():
    assert summary(event()) == "12/60 trials, best 0.312 within 1%, front 5, 1m20s left"
    assert summary(event(total=None, best_ratio=None, left_s=None)) == "12 trials, best none yet within 1%, front 5"


def test_without_a_terminal_every_candidate_is_one_plain_line():
    file = io.StringIO()
    progress = make_progress(True, file)
    progress.note("Resuming.")
    progress.update(event())
    progress.close()
    assert isinstance(progress, LineProgress)
    assert file.getvalue() == (
        "Resuming.\n"
        "i8/i8/i32: 0.312, drop +0.0011 | 12/60 trials, best 0.312 within 1%, front 5, 1m20s left\n"
    )  # fmt: skip


def test_on_a_terminal_a_live_line_shows_the_same(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    file = Terminal()
    progress = make_progress(True, file)
    assert isinstance(progress, LiveProgress)
    progress.update(event(label="[bold]trap"))
    progress.note("Confirming [3] points.")
    progress.close()
    assert "12/60 trials, best 0.312 within 1%" in file.getvalue()
    assert "Confirming [3] points." in file.getvalue()


def test_on_a_terminal_every_candidate_is_shown_when_asked_for(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for verbose in (False, True):
        file = Terminal()
        progress = make_progress(True, file, verbose=verbose)
        progress.update(event())
        progress.close()
        assert ("i8/i8/i32: 0.312, drop +0.0011" in file.getvalue()) == verbose


def test_a_callable_gets_every_event():
    seen = []
    progress = make_progress(seen.append)
    progress.note("not for callables")
    progress.update(event())
    assert seen == [event()]


def test_false_is_silent(capsys):
    progress = make_progress(False)
    progress.note("x")
    progress.update(event())
    progress.close()
    assert isinstance(progress, SilentProgress)
    assert capsys.readouterr() == ("", "")
