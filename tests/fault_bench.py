"""One search of several on one file: `python -m tests.fault_bench FILE STUDY TRIALS SEED`, measured without JAX's clock.

Prints a JSON line with what it measured.
"""

import json
import sys
from pathlib import Path

from tests.search_bench import Bench, FakeEvaluator

LAYERS = 6


def main(file: Path, study: str, trials: int, seed: int) -> None:
    evaluator = FakeEvaluator()
    Bench(file, layers=LAYERS, name=study).search(trials=trials, seed=seed, sampler="random", evaluator=evaluator)
    sys.stdout.write(json.dumps([policy.hash for policy in evaluator.measured]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
