import pytest

from tuner.stability import OUTPUTS, Break, Counts, Stability, Watched


def watched(
    layer, part="activations", *, format="f16", count=100, broke=None, executions=1, largest_given=10.0, **counts
):
    numbers = Counts(count=count, largest_given=largest_given, **counts)
    found = None if broke is None else Break(execution=broke[1], at=broke[0], counts=numbers)
    return Watched(
        layer=layer,
        part=part,
        format=format,
        smallest=-1.0,
        largest=1.0,
        counts=numbers,
        executions=executions,
        broke=found,
    )


def stability(*rows, **precisions):
    return Stability(watched=rows, precisions=precisions)


def test_nothing_wrong_is_said_too():
    fine = stability(watched("a"), watched("a", "results"))
    assert (fine.first_non_finite, fine.first_saturated, fine.first_underflowed) == (None, None, None)
    assert fine.why_non_finite() is None
    assert fine.sentences() == ["Every layer's values are finite."]


def test_the_first_is_the_one_that_broke_first_not_the_one_that_ran_first():
    """In a loop, a layer may break in a later iteration than one after it."""
    early = watched("a", non_finite=2, broke=(7, 3), executions=4)
    late = watched("b", non_finite=9, broke=(4, 2), executions=4)
    assert stability(early, late).first_non_finite is late


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            watched("b", non_finite=12, saturated=12, broke=(3, 1), largest_given=123456.0),
            "layer 'b' (f16/f16/f32) is the first that is not finite: 12 of 100 activations (12 %) exceed the range of "
            "f16 (the largest is 1.235e+05, and f16 ends at 65504)",
        ),
        (
            watched("b", "results", format="f32", non_finite=1, non_finite_given=1, broke=(3, 2), executions=5),
            "layer 'b' (f16/f16/f32) is the first that is not finite, in its execution 2 of 5: 1 of 100 results (1 %) are "
            "NaN or infinite, though everything it reads is finite (at most 9 in magnitude)",
        ),
        (
            watched("b", "right", non_finite=100, non_finite_given=100, broke=(3, 1)),
            "layer 'b' (f16/f16/f32) is the first that is not finite: 100 of 100 right (100 %) are NaN or infinite when "
            "it receives them, computed after layer 'a'",
        ),
        (
            watched("b", "weights", non_finite=1, non_finite_given=1, broke=(3, 1)),
            "layer 'b' (f16/f16/f32) is the first that is not finite: 1 of 100 weights (1 %) are NaN or infinite as given",
        ),
        (
            watched(OUTPUTS, "results", format="f32", non_finite=1, non_finite_given=1, broke=(3, 1)),
            "the outputs alone are not finite: 1 of 100 results (1 %) are NaN or infinite, through what is computed after "
            "layer 'b'",
        ),
    ],
)
def test_why_something_is_not_finite_names_the_layer_and_the_numbers(row, sentence):
    rows = [watched("a", "results"), watched("b", "left", largest_given=9.0)]
    rows += [watched("b", "results")] if row.layer == OUTPUTS else []
    assert stability(*rows, row, b="f16/f16/f32").why_non_finite() == sentence


def test_what_comes_before_the_first_layer_are_the_inputs():
    given = watched("a", non_finite=1, non_finite_given=1, broke=(0, 1))
    assert "computed after the inputs" in stability(given).why_non_finite()


def test_saturation_and_underflow_have_a_first_of_their_own():
    rows = [
        watched("a", underflowed=50),
        watched("b", saturated=3, format="i8", largest_given=7.5),
        watched("c", underflowed=51, format="i8"),
    ]
    found = stability(*rows)
    assert (found.first_saturated, found.first_underflowed) == (rows[1], rows[2])
    assert found.sentences() == [
        "Every layer's values are finite.",
        "Layer 'b' is the first to saturate: 3 of 100 activations (3 %) exceed the range of i8 (the largest is 7.5, and i8 "
        "ends at 127).",
        "Layer 'c' is the first to underflow: 51 of 100 activations (51 %) become zero in i8.",
    ]


def test_what_is_not_finite_in_the_untouched_program_either_is_meant():
    mask = watched("mask", "results", non_finite=5, broke=(0, 1))
    real = watched("b", non_finite=1, broke=(4, 1))
    untouched = stability(mask, watched("b"))
    assert stability(mask, real).first_non_finite is mask
    assert stability(mask, real).besides(untouched).first_non_finite is real
    assert stability(mask).besides(untouched).why_non_finite() is None


def test_it_shows_itself_as_a_table():
    text = repr(stability(watched("a", saturated=1)))
    assert text.splitlines()[0].startswith("layer  what")
    assert "Layer 'a' is the first to saturate" in text
