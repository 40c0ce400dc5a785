from search_spaces import Precision
from tests.factories import make_policy
from tuner.scales import CalibratedOn, Calibration, LayerScales

ON = CalibratedOn(examples=256, split="search", fingerprint="0123456789abcdef")
ONE = LayerScales(scale=(0.5,))


def test_a_policy_is_completed_with_the_numbers_of_its_own_precisions():
    policy = make_policy("original", "i8/i8/i32@static", "i8/i8/i32")
    found = Calibration(on=ON, numbers={"dense_0": {"i8/i8/i32@static": ONE}, "dense_1": {"i8/i8/i32@static": ONE}})
    completed = found.complete(policy)
    assert completed.scales == (("dense_0", ONE),)
    assert completed.calibrated_on == ON
    assert completed.hash != policy.hash


def test_a_policy_that_needs_none_stays_as_it_is():
    policy = make_policy("original", "i8/i8/i32", "i8/i8/i32")
    assert Calibration(on=ON, numbers={"dense_0": {"i8/i8/i32@static": ONE}}).complete(policy) is policy
    assert not Precision.parse("i8/i8/i32").is_calibrated


def test_two_calibrations_know_what_either_knows():
    both = Calibration(on=ON, numbers={"a": {"x": ONE}}).merged(
        Calibration(on=ON, numbers={"a": {"y": ONE}}, problems={"b": "it did not run"})
    )
    assert [both.knows("a", "x"), both.knows("a", "y"), both.knows("b", "x"), both.knows("c", "x")] == [
        *(True, True, True, False)
    ]


def test_what_calibrated_is_said_in_words():
    assert str(ON) == "256 examples of the search split (0123456789ab)"
    assert str(CalibratedOn(examples=8, split="given", fingerprint="ab")) == "8 examples given for it (ab)"
