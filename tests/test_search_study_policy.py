"""What a study measures for given precisions: one place decides kernels, numbers and fusions."""

from search_spaces import ORIGINAL, Precision
from tests.test_search_fusion_checks import normed_net
from tests.test_search_kernel_checks import at
from tuner.kernel_choice import FusionCheck
from tuner.measure.kernel_table import KernelTable
from tuner.scales import CalibratedOn, Calibration, LayerScales
from tuner.search.study_policy import study_policy, uniform_precisions

F32, STATIC = Precision.parse("f32/f32/f32"), Precision.parse("i8/i8/i32@static")


def table() -> KernelTable:
    times = {f"s {F32} plain": 2.0, f"s {F32} transposed": 1.0}
    kernels = {(layer, F32): ("plain", "transposed") for layer in "ab"}
    return KernelTable(times=times, signatures=dict.fromkeys("ab", (("s", 1),)), kernels=kernels)


def test_layers_run_in_the_kernel_that_the_table_says_or_in_the_plain_one():
    precisions = {"a": F32, "b": F32}
    found = study_policy(normed_net(), precisions, table(), Calibration(), plain=["b"])
    assert [(name, a.kernel) for name, a in found.assignments if not a.precision.is_original] == [
        ("a", "transposed"),
        ("b", "plain"),
    ]


def test_numbers_and_fusions_belong_to_it():
    numbers = {"b": {str(STATIC): LayerScales(scale=(0.1,))}}
    calibration = Calibration(on=CalibratedOn(examples=8, split="search", fingerprint="abc"), numbers=numbers)
    fusions = [FusionCheck(precision=str(F32), kind="affine", edges=1, compared=at(0.9))]
    found = study_policy(normed_net(), {"a": F32, "b": STATIC}, table(), calibration, fusions)
    assert [name for name, _ in found.scales] == ["b"]
    assert list(map(str, found.fusions)) == ["affine a"]
    assert not study_policy(normed_net(), {"b": STATIC}, table(), calibration, fusions).fusions


def test_uniform_is_wherever_it_may_be():
    assert uniform_precisions(F32, {"a": (ORIGINAL, F32), "b": (ORIGINAL,)}) == {"a": F32}
