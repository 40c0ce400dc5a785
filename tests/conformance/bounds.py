"""How far off a policy's results may be: derived from the formats, by asking the reference how it answers to their rounding.

Every floating parameter and input is moved by as much as rounding it to the policy's coarsest format can move it, up or down
at random, and the program is run again as the user wrote it. Every layer rounds some more of what passes through it:
weights, activations and sums. So its results may be as far off as that answer, times the roundings.
"""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from search_spaces import FORMATS, Format
from tuner.policy import Policy

# Weights, activations, and the sum or what is handed on; and the next layer's share of them.
ROUNDINGS = 2
DRAWS = 3


def formats_of(policy: Policy) -> tuple[Format, ...]:
    """What a policy rounds to; sums of integers round nothing."""
    chosen = [assignment.precision for _, assignment in policy.assignments if not assignment.precision.is_original]
    fields = [(p.weights, p.activations, p.accumulate, *([p.output] if p.output else ())) for p in chosen]
    return tuple({format.name: format for field in fields for format in field if format.name != "i32"}.values())


def rounding(value: np.ndarray, format: Format) -> np.ndarray:
    """By how much each number may move: half a unit in the last place, for integers of the largest one's scale."""
    if format.kind == "int":
        return np.full(value.shape, np.abs(value).max(initial=0.0) / format.max / 2)
    near_zero = (
        np.abs(value).max(initial=0.0) / format.max * float(jnp.finfo(format.dtype).tiny) if format.bits == 8 else 0
    )
    return np.maximum(np.abs(value), near_zero) * float(jnp.finfo(format.dtype).eps) / 2


def allowed(
    run: Callable[..., Any], params: Any, inputs: Any, reference: list[np.ndarray], formats: Iterable[Format]
) -> list[float]:
    """For each output leaf how far it may be from the reference, in the Euclidean norm."""
    formats = (*formats, FORMATS["f32"])
    farthest = [0.0] * len(reference)
    for seed in range(DRAWS):
        signs = np.random.default_rng(seed)
        answer = run(*jax.tree_util.tree_map(lambda leaf, signs=signs: _moved(leaf, formats, signs), (params, inputs)))
        for i, (leaf, own) in enumerate(zip(jax.tree_util.tree_leaves(answer), reference, strict=True)):
            if is_floating(own):
                farthest[i] = max(farthest[i], distance(np.asarray(leaf), own))
    return [
        ROUNDINGS * (far + (size(rounding(own.astype(float), _coarsest(own, formats))) if is_floating(own) else 0.0))
        for far, own in zip(farthest, reference, strict=True)
    ]


def _moved(leaf: Any, formats: tuple[Format, ...], signs: np.random.Generator) -> Any:
    if jnp.issubdtype(jnp.result_type(leaf), jax.dtypes.extended) or not is_floating(leaf):
        return leaf
    value = np.asarray(leaf).astype(float)
    shift = np.max([rounding(value, format) for format in formats], axis=0)
    return jnp.asarray(value + shift * signs.choice([-1.0, 1.0], value.shape), leaf.dtype)


def _coarsest(own: np.ndarray, formats: Iterable[Format]) -> Format:
    """The format that rounds most, the output's own included."""
    halves = {"bfloat16": "bf16", "float16": "f16"}
    names = {format.name for format in formats} | {halves.get(own.dtype.name, "f32")}
    return next(FORMATS[name] for name in ("i4", "f8_e5m2", "f8_e4m3fn", "bf16", "i8", "f16", "f32") if name in names)


def is_floating(value: Any) -> bool:
    return bool(jnp.issubdtype(value.dtype, jnp.floating))


def size(value: np.ndarray) -> float:
    return float(np.linalg.norm(value))


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return size(found.astype(float) - expected.astype(float))
