"""The policy that a study measures for given precisions: with its kernels, its calibrated numbers and its fusions."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from search_spaces import Precision
from tuner.kernel_choice import FusionCheck
from tuner.measure import KernelTable
from tuner.policy import PLAIN, Assignment, Policy
from tuner.program import Program, available_fusions, make_policy
from tuner.scales import Calibration


def study_policy(
    program: Program,
    precisions: Mapping[str, Precision],
    table: KernelTable,
    calibration: Calibration,
    fusions: Sequence[FusionCheck] = (),
    *,
    plain: Collection[str] = (),
) -> Policy:
    """The policy of these precisions.

    Args:
        program: what is tuned.
        precisions: layer name -> precision; layers that are not named stay as written.
        table: of the kernels that the study runs with.
        calibration: the numbers that precisions need.
        fusions: what each kind of fusion does to the whole program.
        plain: layers that run in the plain kernel, whatever the table says.
    """
    chosen = {
        name: Assignment(precision=precision, kernel=PLAIN if name in plain else table.best(name, precision))
        for name, precision in precisions.items()
    }
    policy = calibration.complete(make_policy(program, chosen, elsewhere=table.kernels))
    return with_fusions(policy, program, fusions)


def uniform_precisions(precision: Precision, choices: Mapping[str, Sequence[Precision]]) -> dict[str, Precision]:
    """The precision for every layer that may take it."""
    return {name: precision for name, allowed in choices.items() if precision in allowed}


def with_fusions(policy: Policy, program: Program, checks: Sequence[FusionCheck]) -> Policy:
    """The policy with every fusion that it allows and that pays in the precision of the layer it ends in."""
    paying = {(check.precision, check.kind) for check in checks if check.pays}
    if not paying:
        return policy
    precisions = {name: str(precision) for name, precision in policy.precisions.items()}
    chosen = (f for f in available_fusions(program, policy) if (precisions[f.layers[-1]], f.kind) in paying)
    return replace(policy, fusions=tuple(chosen))
