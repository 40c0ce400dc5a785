"""What a kernel did in the whole program, in a sentence."""

from tuner.kernel_choice import KernelCheck
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
