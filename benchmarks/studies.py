"""A short search on every ready study and the table of what was found: `python -m benchmarks.studies [--budget 2m]`.

With `--write studies/README.md` the table replaces the one that stands there; with `--budget 0` nothing is searched, only
loaded and captured.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks import markdown
from benchmarks.machine import header
from benchmarks.study_list import Ready, find_studies
from tuner.errors import InputError, TunerError
from tuner.files import write_atomically

TITLES = (
    *("study", "model", "library", "data", "batch", "layers", "score in f32", "ms in f32"),
    *(
        "fastest confirmed policy, 1 %",
        "latency (95 %)",
        "drop (95 %)",
        "weights",
        "load and capture, s",
        "peak memory",
    ),
)
_CELLS = ("batch", "layers", "score", "ms", "best", "ratio", "drop", "weights", "loaded", "peak")
_BEST = 4 + _CELLS.index("best")
# Beyond the budget: loading, training what is not in the cache yet, compiling, confirming.
_PATIENCE_S = 1800
BEGIN, END = "<!-- table: make studies -->", "<!-- end of table -->"


def rows(budget: str, wanted: Sequence[str] = ()) -> Iterator[tuple[str, ...]]:
    """One row per study, as soon as it is searched; one that cannot be loaded says why."""
    for ready in _chosen(wanted):
        cells = _in_a_process(ready.reference, budget)
        row = _row(ready, cells)
        if "error" in cells:
            print(f"{ready.reference}: {cells['error']}", file=sys.stderr, flush=True)
            remedy = re.search("`([^`]+)`", cells["error"])
            row = (*row[:_BEST], f"needs `{remedy[1]}`" if remedy else "does not run here", *row[_BEST + 1 :])
        yield row


def _row(ready: Ready, cells: Mapping[str, str]) -> tuple[str, ...]:
    measured = (cells.get(cell, markdown.MISSING) for cell in _CELLS)
    return (ready.reference, ready.model, ready.library, ready.data, *measured)


def write_into(document: Path, text: str) -> None:
    """Puts the text between the two marks of a document.

    Raises:
        InputError: it has no such marks.
    """
    before, begin, rest = document.read_text(encoding="utf-8").partition(f"{BEGIN}\n")
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise InputError(f"{document} has no lines {BEGIN!r} and {END!r}; put them where the table belongs")
    write_atomically(document, f"{before}{begin}\n{text}\n\n{end}{after}", force=True, error=InputError)


def _chosen(wanted: Sequence[str]) -> list[Ready]:
    """The studies of these names, all without any.

    Raises:
        InputError: there is no such study.
    """
    found = {ready.reference: ready for ready in find_studies()}
    for reference in wanted:
        if reference not in found:
            raise InputError(f"no study {reference!r}; there are {', '.join(found)}")
    return [ready for reference, ready in found.items() if not wanted or reference in wanted]


def _in_a_process(reference: str, budget: str) -> Mapping[str, str]:
    command = [sys.executable, "-m", "benchmarks.study_row", reference, budget, str(time.time())]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
        cells: Mapping[str, str] = json.loads(ran.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"error": f"no end after {_PATIENCE_S} s"}
    except subprocess.CalledProcessError as error:
        last = (error.stderr or "").strip().splitlines()
        return {"error": last[-1] if last else f"ended with exit code {error.returncode}"}
    return cells


def main(argv: list[str] | None = None) -> int:
    """Prints the table row by row, and writes it where that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="2m", help="of each search; 0 only loads and captures (default 2m)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into this document, too")
    parser.add_argument("study", nargs="*", help="which ones (default all)")
    asked = parser.parse_args(argv)
    try:
        return _run(asked.budget, asked.study, asked.write)
    except TunerError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code


def _run(budget: str, wanted: Sequence[str], document: Path | None) -> int:
    about = header()
    print(about, flush=True)
    done: list[tuple[str, ...]] = []
    how = "loaded and captured only: `make studies` searches them" if budget == "0" else f"each searched for {budget}"
    waiting = [_row(ready, {}) for ready in _chosen(wanted)]
    for row in rows(budget, wanted):  # each is printed and written as soon as it is there: all take long
        lines = markdown.table(TITLES, [row]).splitlines()
        print("\n".join([""] * (not done) + lines[2 if done else 0 :]), flush=True)
        done.append(row)
        if document is not None:
            table = markdown.table(TITLES, [*done, *waiting[len(done) :]])
            write_into(document, f"{about}\n- {how}\n\n{table}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
