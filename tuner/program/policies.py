"""Policies made for a program: all layers as written, one precision everywhere, or a given mix."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from search_spaces import ORIGINAL, Precision
from tuner.errors import PolicyError
from tuner.policy import PLAIN, Assignment, Policy
from tuner.program import kernels
from tuner.program.fusions import check_fusions
from tuner.program.kernels import supports
from tuner.program.layer import EMBEDDING, INPUT, Layer
from tuner.program.program import Program
from tuner.program.steps import Site
from tuner.scales import LayerScales


def original_policy(program: Program) -> Policy:
    """The policy of the baseline: every layer exactly as the user wrote it."""
    return make_policy(program, {})


def make_policy(
    program: Program,
    chosen: Mapping[str, Assignment | Precision | str],
    *,
    elsewhere: Mapping[tuple[str, Precision], Sequence[str]] = MappingProxyType({}),
) -> Policy:
    """A policy for every layer of a program; layers that are not chosen stay as written.

    Args:
        program: the program.
        chosen: layer name -> assignment, precision, or a precision as text.
        elsewhere: layer name and precision -> kernels that apply to inputs of other shapes.

    Raises:
        PolicyError: a layer does not exist, or cannot run in the precision chosen for it.
        SearchSpaceError: a text is no precision.
    """
    known = {layer.name: layer for layer in program.layers}
    sites = _sites_by_layer(program)
    for name in chosen:
        if name not in known:
            raise PolicyError(f"layer {name!r} does not exist; the layers are {', '.join(known) or 'none'}")
    assignments = []
    for name, layer in known.items():
        assignment = _assignment(chosen.get(name, ORIGINAL))
        _check_precision(layer, assignment.precision)
        here = kernels.kernel_names(sites[name], assignment.precision)
        names = (*here, *elsewhere.get((name, assignment.precision), ()))
        if assignment.kernel not in names:
            allowed = ", ".join(names)
            raise PolicyError(
                f"layer {name!r} has no kernel {assignment.kernel!r} in {assignment.precision}; use {allowed}"
            )
        assignments.append((name, assignment))
    return Policy(tuple(assignments), program=program.signature)


def check_runs(policy: Policy, program: Program, where: str = "the policy") -> None:
    """Returns when this version can run every layer as the policy says; the policy must fit the program.

    Args:
        policy: the policy.
        program: what it is for.
        where: what messages call the policy.

    Raises:
        PolicyError: a precision is not available, or not for such a layer, or a kernel does not exist, or a fusion.
    """
    sites, assignments = _sites_by_layer(program), dict(policy.assignments)
    for layer in program.layers:
        assignment = assignments[layer.name]
        if not _is_held_already(layer, assignment.precision):
            _check_precision(layer, assignment.precision, f"{where}: ")
        _check_numbers(policy, layer, assignment.precision, where)
        known = any(kernels.has_kernel(site, assignment.kernel) for site in sites[layer.name])
        if assignment.kernel != PLAIN and not known:
            raise PolicyError(
                f"{where}: layer {layer.name!r} has no kernel {assignment.kernel!r} in this version; "
                "upgrade jax-precision-tuner, or search here and export the policy again"
            )
    check_fusions(policy, program, where)


def _check_numbers(policy: Policy, layer: Layer, precision: Precision, where: str) -> None:
    """Raises when a layer lacks calibrated numbers that its precision needs."""
    if not kernels.needs_numbers(layer.kind, precision):
        return
    scales = dict(policy.scales).get(layer.name, LayerScales())
    zero_point = not precision.symmetric and precision.activations.kind == "int"
    needed = {
        "scale": precision.scaling == "static" and not scales.scale,
        "zero point": precision.scaling == "static" and zero_point and len(scales.zero_point) != len(scales.scale),
        "correction": precision.bias_correction and not scales.correction,
    }
    lacking = [name for name, lacks in needed.items() if lacks]
    if lacking:
        raise PolicyError(
            f"{where}: layer {layer.name!r} runs in {precision} and has no {lacking[0]} of calibration; "
            "make it with tuner.calibrate(task, policy), or choose a precision that needs none"
        )


def uniform_policy(
    program: Program, precision: Precision | str, choices: Mapping[str, tuple[Precision, ...]] | None = None
) -> Policy:
    """Every layer that may take the precision takes it; the others stay as written.

    Args:
        program: the program.
        precision: the precision, or its text.
        choices: layer name -> allowed precisions; left out, whatever each layer can run.

    Raises:
        SearchSpaceError: the text is no precision.
    """
    precision = Precision.parse(precision) if isinstance(precision, str) else precision
    takers = {
        layer.name: precision
        for layer in program.layers
        if supports(layer, precision) is None and (choices is None or precision in choices[layer.name])
    }
    return make_policy(program, takers)


def kernel_names(program: Program, layer: str, precision: Precision) -> tuple[str, ...]:
    """The equivalent kernels that can run a layer in a precision, the plain one first.

    Raises:
        KeyError: there is no such layer.
    """
    return kernels.kernel_names(_sites_by_layer(program)[layer], precision)


def _sites_by_layer(program: Program) -> dict[str, tuple[Site, ...]]:
    return {layer.name: sites for layer, sites in zip(program.layers, program.sites, strict=True)}


def _check_precision(layer: Layer, precision: Precision, prefix: str = "") -> None:
    reason = supports(layer, precision)
    if reason:
        raise PolicyError(f"{prefix}layer {layer.name!r} cannot run in {precision}: {reason}; choose another precision")


def _is_held_already(layer: Layer, precision: Precision) -> bool:
    """True where the precision asks for the dtype there is: no choice in a search, and harmless in a policy file."""
    return layer.kind in (INPUT, EMBEDDING) and layer.dtype == precision.weights.dtype


def _assignment(value: Assignment | Precision | str) -> Assignment:
    if isinstance(value, Assignment):
        return value
    return Assignment(precision=Precision.parse(value) if isinstance(value, str) else value)
