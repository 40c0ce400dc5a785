"""Static inputs: by which scale, known before the program runs, a layer's operation takes in its activations."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from search_spaces import Format
from tuner.program import kernels
from tuner.program.layer import EMBEDDING
from tuner.program.plan import Plan
from tuner.program.steps import Site


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class StaticInput:
    """How activations become values of a scaled format: q = round(x / scale) + zero point, cut off at the format's ends.

    Attributes:
        operand: which operand of the operation they are.
        format: what they are held in.
        scale: float32, one number, or one per iteration where the layer's weights are stacked along a scan.
        zero_point: int32, as many; all zero where the scale is symmetric.
    """

    operand: int
    format: Format
    scale: NDArray[np.float32]
    zero_point: NDArray[np.int32]


def static_input(plan: Plan, site: Site) -> StaticInput | None:
    """The static input of an operation under a plan; None where its scale is found at run time, or it needs none."""
    assignment = plan.assignments.get(id(site))
    if assignment is None or assignment.precision.scaling != "static" or site.kind == EMBEDDING:
        return None
    numbers = plan.scales[plan.names[id(site)]]
    scale = np.concatenate([one.scale for one in numbers]).astype(np.float32)
    zeros = np.concatenate([one.zero_point for one in numbers]).astype(np.int32)
    return StaticInput(
        operand=kernels.activations_of(site),
        format=assignment.precision.activations,
        scale=scale,
        zero_point=zeros if zeros.size else np.zeros(scale.shape, np.int32),
    )
