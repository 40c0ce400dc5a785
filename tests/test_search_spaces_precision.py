import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from search_spaces import FORMATS, ORIGINAL, Precision, SearchSpaceError
from search_spaces.combinations import ACCUMULATORS, OPERANDS, OUTPUTS
from search_spaces.precision import ALIASES, OPTIONS

FIELDS = {
    "output": [None, *(FORMATS[name] for name in OUTPUTS)],
    "scaling": ["dynamic", "static"],
    "observer": ["max", "p99.9", "mse"],
    "granularity": ["channel", "tensor", "row", "g32", "g64", "g128"],
    "symmetric": [True, False],
    "bias_correction": [False, True],
}


def make(**fields) -> Precision | None:
    """The precision, None where the combination does not exist."""
    try:
        return Precision(**fields)
    except SearchSpaceError:
        return None


def every_valid_precision():
    yield ORIGINAL
    for weights, activations, accumulate in itertools.product(OPERANDS, OPERANDS, ACCUMULATORS):
        formats = {
            "weights": FORMATS[weights],
            "activations": FORMATS[activations],
            "accumulate": FORMATS[accumulate],
        }
        if make(**formats) is None:
            continue
        for values in itertools.product(*FIELDS.values()):
            precision = make(**formats, **dict(zip(FIELDS, values, strict=True)))
            if precision is not None:
                yield precision


VALID = tuple(every_valid_precision())
precisions = st.sampled_from(VALID)


def test_every_valid_precision_parses_back_from_its_text():
    assert len(VALID) > 1000
    assert all(Precision.parse(str(precision)) == precision for precision in VALID)


def test_no_two_precisions_share_a_text():
    assert len({str(precision) for precision in VALID}) == len(VALID) == len(set(VALID))


@given(precisions, st.randoms())
def test_case_blanks_order_and_written_defaults_do_not_matter(precision, random):
    assume(not precision.is_original)
    body, _, text = str(precision).partition("@")
    options = [option for option in text.split(",") if option]
    written = {"scaling": "dynamic", "observer": "max", "granularity": "channel"}
    options += [default for field, default in written.items() if getattr(precision, field) == default]
    options += ["sym"] if precision.symmetric else []
    random.shuffle(options)
    spelled = f" {body.replace('/', ' / ')} @ {' , '.join(options)} ".upper()
    assert Precision.parse(spelled) == precision


@given(st.text(st.sampled_from("fbi1638240/->@,origncwa"), max_size=20))
@settings(max_examples=300)
def test_any_text_is_a_precision_or_one_clear_error(text):
    try:
        precision = Precision.parse(text)
    except SearchSpaceError as error:
        message = str(error)
    else:
        message = f"precision {precision} is {Precision.parse(str(precision))}"
        assert Precision.parse(str(precision)) == precision
    assert "precision" in message


def test_original_is_three_null_formats():
    assert Precision.parse(" Original ") == ORIGINAL
    assert str(ORIGINAL) == "original"
    assert ORIGINAL.is_original
    assert ORIGINAL.unavailable is None
    assert {f.name for f in (ORIGINAL.weights, ORIGINAL.activations, ORIGINAL.accumulate)} == {"original"}
    assert ORIGINAL.weights.bits == 0


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("f32/f32/f32", "f32/f32/f32"),
        ("float32/bfloat16/fp32", "f32/bf16/f32"),
        ("w8a8", "i8/i8/i32"),
        ("w8a16", "i8/bf16/f32"),
        ("w4a16", "i4/bf16/f32"),
        ("FP8", "f8_e4m3fn/f8_e4m3fn/f32"),
        ("bf16", "bf16/bf16/bf16"),
        ("float16", "f16/f16/f16"),
        ("tf32", "tf32/tf32/f32"),
        ("i8", "i8/i8/i32"),
        ("f8_e5m2", "f8_e5m2/f8_e5m2/f32"),
        ("bf16/bf16/f32->bf16", "bf16/bf16/f32->bf16"),
        ("w8a8->bf16@static,mse", "i8/i8/i32->bf16@static,mse"),
        ("w8a8@bias,asym,g32,p99.9,static", "i8/i8/i32@static,p99.9,g32,asym,bias"),
        ("w8a8@dynamic,max,channel,sym", "i8/i8/i32"),
    ],
)
def test_texts_print_in_their_one_spelling(text, printed):
    assert str(Precision.parse(text)) == printed


def test_only_options_that_differ_from_their_default_are_printed():
    w8a8 = Precision.parse("w8a8")
    assert str(replace(w8a8, granularity="tensor")) == "i8/i8/i32@tensor"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bf16/f32", "precision 'bf16/f32' has 2 fields; write WEIGHTS/ACTIVATIONS/ACCUMULATE"),
        ("i32", "unknown precision 'i32'; use one of original, "),
        ("", "unknown precision ''; use one of original, "),
        ("i32/f32/f32", "unusable format 'i32' for weights; use one of f32, "),
        ("i8/i8/i32->i8", "unusable format 'i8' for output; use one of f32, bf16, f16"),
        ("f32/f32/tf32", "unusable format 'tf32' for accumulate; use one of f32, bf16, f16, i32"),
        ("i8/i8/f32", "two integer operands accumulate in i32, not f32; write i32"),
        ("i8/f32/i32", "i32 accumulates integer operands only; write f32, or i8 for both operands"),
        ("f32/i8/f32", "i8 activations need weights of the same kind; write i8 for the weights too"),
        ("i8/f8_e5m2/f32", "f8_e5m2 activations need weights of the same kind"),
        ("f32/f32/bf16", "bf16 cannot hold every f32 value; accumulate in f32 and write ->bf16"),
        ("bf16/bf16/f16", "f16 cannot hold every bf16 value"),
        ("i8/f32/bf16", "bf16 cannot hold every f32 value"),
        ("w8a8@static,dynamic", "'static' and 'dynamic' cannot both be given; keep one"),
        ("w8a8@asym,asym", "'asym' and 'asym' cannot both be given; keep one"),
        ("w8a8@", "unknown option ''; use one of dynamic, static, "),
        ("w8a8@mse", "mse needs the option static beside it"),
        ("w8a16@static", "static needs scaled activations (i8, i4 or f8)"),
        ("bf16@g32", "g32 needs scaled weights (i8, i4 or f8)"),
        ("fp8@asym", "asym needs integer weights or activations (i8 or i4)"),
        ("bf16@bias", "bias needs scaled weights"),
        ("original->bf16", "precision original: ->bf16 needs formats before it"),
        ("original@static", "precision original: static needs scaled activations"),
    ],
)
def test_what_cannot_be_is_refused_with_the_remedy(text, message):
    with pytest.raises(SearchSpaceError) as caught:
        Precision.parse(text)
    assert message in str(caught.value)


def listed_names(text: str) -> list[str]:
    with pytest.raises(SearchSpaceError) as caught:
        Precision.parse(text)
    return str(caught.value).partition("use one of ")[2].partition(", or write")[0].split(", ")


def test_every_name_an_error_lists_is_accepted():
    names = listed_names("w9a9")
    assert set(names) == {"original", *ALIASES, *OPERANDS}
    for name in names:
        Precision.parse(name)
    for name in listed_names("i7/f32/f32"):
        Precision.parse(f"{name}/f32/f32")
    for name in listed_names("i8/i7/i32"):
        Precision.parse(f"{name}/{name}/{'i32' if name.startswith('i') else 'f32'}")
    for name in listed_names("i8/i8/i7"):
        Precision.parse(f"i8/{'i8' if name == 'i32' else name}/{name}")
    for name in listed_names("bf16/bf16/f32->i7"):
        Precision.parse(f"bf16/bf16/f32->{name}")
    for name in listed_names("w8a8@turbo"):
        Precision.parse(f"w8a8@static,{name}" if name in ("p99.9", "mse") else f"w8a8@{name}")
    assert set(listed_names("w8a8@turbo")) == set(OPTIONS)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("scaling", "slow", "unknown scaling 'slow'; use one of dynamic, static"),
        ("observer", "p50", "unknown observer 'p50'; use one of max, p99.9, mse"),
        ("granularity", "g7", "unknown granularity 'g7'; use one of channel, tensor, row, g32, g64, g128"),
        ("accumulate", FORMATS["i8"], "'i8' cannot be the format for accumulate; use one of f32, bf16, f16, i32"),
        ("weights", ORIGINAL.weights, "'original' cannot be the format for weights; use one of f32, "),
        ("output", FORMATS["i8"], "'i8' cannot be the format for output; use one of f32, bf16, f16"),
    ],
)
def test_construction_checks_every_field(field, value, message):
    with pytest.raises(SearchSpaceError) as caught:
        replace(Precision.parse("w8a8"), **{field: value})
    assert message in str(caught.value)


def test_weight_only_is_scaled_weights_beside_plain_activations():
    assert Precision.parse("w8a16").is_weight_only
    assert Precision.parse("i8/f32/f32").is_weight_only
    assert not any(Precision.parse(text).is_weight_only for text in ("w8a8", "bf16/f32/f32", "original"))


@pytest.mark.parametrize(
    "text",
    [
        "f32",
        "bf16",
        "f16",
        "bf16/bf16/f32",
        "f16/f16/f32",
        "w8a8",
        "w8a16",
        "i8/f32/f32",
        "bf16/f32/f32",
        "f16/f32/f32",
        "w8a8->bf16",
        "w4a16@g32",
        "i8/i4/i32",
        "fp8",
        "f8_e5m2",
        "w8a8@tensor",
        "w8a8@asym",
        "w8a8@static,mse",
        "w8a8@bias",
    ],
)
def test_what_is_built_has_no_reason_to_be_unavailable(text):
    assert Precision.parse(text).unavailable is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("tf32", "tf32"),
    ],
)
def test_what_is_not_built_says_what_it_waits_for(text, named):
    reason = Precision.parse(text).unavailable
    assert reason is not None
    assert reason.startswith("not available yet: ")
    assert named in reason


def test_a_precision_shows_its_spelling():
    assert repr(Precision.parse("w8a8")) == "Precision.parse('i8/i8/i32')"
    assert repr(ORIGINAL) == "Precision.parse('original')"
