"""The table of programs x policies: examples, ways to reach a weight, and part F, in each precision and in a mix of them."""

from collections.abc import Callable

from search_spaces import Precision
from tests.conformance.part_f import PROGRAMS as PART_F
from tests.conformance.rows import Row
from tests.programs import EXAMPLES
from tests.weight_programs import WEIGHTS
from tuner.policy import Policy
from tuner.program import Program, make_policy, supports, uniform_policy

PROGRAMS: dict[str, Row] = {
    name: Row(threads=name, broke="nothing", make=make) for name, make in (EXAMPLES | WEIGHTS).items()
}
PROGRAMS |= PART_F

UNIFORM = ("f32/f32/f32", "bf16/bf16/f32->bf16", "f16/f16/f32", "i8/i8/i32")
# Held to the same on the examples alone: what else can go wrong with them is a matter of their kernels.
SCALED = ("i4/f32/f32", "fp8")
# Layer by layer, each the first of these from its own position on that it can take.
MIX = tuple(
    map(
        Precision.parse,
        ("bf16/bf16/bf16", "i8/i8/i32->bf16", "bf16/bf16/f32->bf16", "f16/f16/f16->f16", "i8/bf16/f32", "i8/f32/f32"),
    )
)


def mixed_policy(program: Program) -> Policy:
    """Neighbors in different formats, some handing on 16 bits and some not; every fifth layer stays as written."""
    chosen = {}
    for position, layer in enumerate(program.layers):
        order = MIX[position % len(MIX) :] + MIX[: position % len(MIX)]
        able = [precision for precision in order if supports(layer, precision) is None]
        if able and position % 5 != 4:
            chosen[layer.name] = able[0]
    return make_policy(program, chosen)


POLICIES: dict[str, Callable[[Program], Policy]] = {
    **{text: lambda program, text=text: uniform_policy(program, text) for text in UNIFORM},
    "mixed": mixed_policy,
}
