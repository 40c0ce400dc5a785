"""What the benchmarks have in common as commands."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence

from benchmarks.machine import header
from tuner.measure.latency import Effort

# Blocks of Markdown, each given as soon as it is measured.
Report = Callable[[bool], Iterator[str]]

THOROUGH = Effort(width=0.02, seconds=4.0, pairs=20)
SMOKE = Effort(width=1.0, seconds=0.01, pairs=2, least_pairs=2, sample_s=0.0)


def effort(smoke: bool) -> Effort:
    """How long a ratio is measured."""
    return SMOKE if smoke else THOROUGH


def run(reports: Mapping[str, Report], argv: Sequence[str] | None = None) -> int:
    """Prints the machine and then every report under its title."""
    parser = argparse.ArgumentParser(description="; ".join(reports))
    parser.add_argument(
        "--smoke", action="store_true", help="on tiny shapes, in seconds: shows that it runs; the numbers mean nothing"
    )
    smoke = parser.parse_args(argv).smoke
    print(header(), flush=True)
    if smoke:
        print("- smoke run: the numbers mean nothing")
    for title, report in reports.items():
        print(f"\n## {title}", flush=True)
        for block in report(smoke):
            print(f"\n{block}", flush=True)
    return 0
