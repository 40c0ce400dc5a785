"""What a kernel or a fusion did in the whole program, in a sentence."""

from tuner.kernel_choice import FusionCheck, KernelCheck
from tuner.report import numbers


def check_text(check: KernelCheck) -> str:
    """`Kernel shifted in f32/f32/f32 (16 layers): 0.120 (0.110..0.130) of the plain kernel's time in the whole program.`"""
    layers = f"{len(check.layers)} {'layer' if len(check.layers) == 1 else 'layers'}"
    what = f"Kernel {check.kernel} in {check.precision} ({layers})"
    compared = check.compared
    if compared.problem:
        ending = "dropped" if check.loses else "kept, as the fastest alone"
        return f"{what} could not be compared in the whole program, {ending}: {compared.problem}."
    ratio = numbers.ratio_interval(compared.ratio, compared.low, compared.high)
    return f"{what}: {ratio} of the plain kernel's time in the whole program{', dropped' if check.loses else ''}."


def fusion_text(check: FusionCheck) -> str:
    """`Fusion affine in f32/f32/f32 (7 edges): 0.970 (0.950..0.990) of the time without it in the whole program.`"""
    what = f"Fusion {check.kind} in {check.precision} ({check.edges} {'edge' if check.edges == 1 else 'edges'})"
    compared = check.compared
    if compared.problem:
        return f"{what} could not be compared in the whole program, dropped: {compared.problem}."
    ratio = numbers.ratio_interval(compared.ratio, compared.low, compared.high)
    return f"{what}: {ratio} of the time without it in the whole program{'' if check.pays else ', dropped'}."
