"""The choice of kernels: what loses, and that it is kept as it was."""

import json
import math

from tuner.kernel_choice import Comparison, KernelCheck, KernelChoice, choice_from_json, choice_to_json, unknown


def check(kernel: str, compared: Comparison) -> KernelCheck:
    return KernelCheck(precision="f32/f32/f32", kernel=kernel, layers=("a", "b"), compared=compared)


FASTER = check("shifted", Comparison(ratio=0.12, low=0.11, high=0.13))
SLOWER = check("patches", Comparison(ratio=1.1, low=1.05, high=1.2))
BROKEN = check("rows", Comparison(ratio=math.inf, low=math.inf, high=math.inf, problem="it crashes"))


def test_what_is_certainly_slower_or_does_not_run_loses() -> None:
    assert SLOWER.loses
    assert BROKEN.loses
    assert not FASTER.loses
    assert not check("rows", Comparison(ratio=1.02, low=0.99, high=1.05)).loses
    assert not check("rows", unknown("no time")).loses


def test_a_choice_is_read_as_it_was_written() -> None:
    choice = KernelChoice(chosen={"f32/f32/f32": {"a": "shifted"}}, checks=(FASTER, SLOWER, BROKEN))
    assert choice_from_json(json.loads(json.dumps(choice_to_json(choice), allow_nan=False))) == choice


def test_what_could_not_be_compared_stays_unknown() -> None:
    choice = KernelChoice(checks=(check("rows", unknown("the other one crashes")),))
    (read,) = choice_from_json(json.loads(json.dumps(choice_to_json(choice), allow_nan=False))).checks
    assert math.isnan(read.compared.ratio)
    assert read.compared.problem == "the other one crashes"
    assert not read.loses
