"""Every activation and every norm that Flax, Equinox and Haiku ship, behind a layer whose result is handed on in 16 bits."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import narrow_rules
from tests.library_norms import OF_WEIGHTS, eqx, hk, linen, make, nnx, norms
from tests.narrow_rules import ARITHMETIC, MOVEMENT, SENSITIVE, Operation, behind_products, operations, violations
from tests.programs import normal
from tuner.program import Program, capture, make_policy, prepare

optax = pytest.importorskip("optax", reason="optax, which Flax brings along, is not installed")

NARROW = "bf16/bf16/f32->bf16"
# Half a unit in the last place: how far one rounding moves a value, relative to it.
ROUNDING = float(jnp.finfo(jnp.bfloat16).eps) / 2

# What else these namespaces hold: weights, no function of activations, or products, which are layers of their own.
NO_ACTIVATIONS = {
    "initializers": "make weights",
    "one_hot": "takes integers",
    "dot_product_attention": "two products with a softmax between them",
    "scaled_matmul": "a product",
    "scaled_dot_general": "a product",
    "get_scaled_dot_general_config": "settings of a product",
}
# Functions of numbers of one sign.
POSITIVE = {"log1mexp"}
# Where one name has two formulas.
VARIANTS: dict[str, Callable[[Any], Any]] = {"gelu without approximation": lambda h: jax.nn.gelu(h, approximate=False)}


def activations() -> dict[str, Callable[[Any], Any]]:
    """Every activation function by the names it has; the libraries mostly hand on those of JAX, which is tested once.

    Equinox and Haiku take their activations from `jax.nn` and have no functions of their own: a name of theirs that is
    one of JAX's would be found here.
    """
    spaces = {"jax.nn": jax.nn, "linen": linen.activation, "nnx": nnx.nn.activations, "equinox": eqx.nn, "haiku": hk}
    wanted = {name for name in dir(jax.nn) if not name.startswith("_")} | {"normalize"}
    names: dict[int, tuple[Callable[[Any], Any], list[str]]] = {}
    for space, module in spaces.items():
        for name in sorted(wanted & set(dir(module)) - NO_ACTIVATIONS.keys()):
            function = getattr(module, name)
            names.setdefault(id(function), (function, []))[1].append(f"{space}.{name}")
    return {" = ".join(aliases): function for function, aliases in names.values()} | VARIANTS


ACTIVATIONS = activations()


def behind_a_layer(function: Callable[[Any], Any], positive: bool) -> tuple[Callable[..., Any], Any, Any]:
    """A dense layer in a scope of its own, as the libraries write it, and a function of its result."""
    sign = np.abs if positive else np.asarray
    params = {"fc": {"w": sign(normal(8, 16) / 2), "bias": sign(normal(16) / 4)}}

    def apply(params: Any, x: Any) -> Any:
        with jax.named_scope("fc"):
            h = x @ params["fc"]["w"] + params["fc"]["bias"]
        return function(h)

    return apply, params, sign(normal(6, 8))


def prelu(library: str) -> tuple[Callable[..., Any], Any, Any]:
    """The one activation that the libraries ship as a layer, since it has a parameter."""
    if library == "linen":
        module = linen.PReLU()
        slope = module.init(jax.random.key(0), jnp.ones((1, 16)))
        return behind_a_layer(lambda h: module.apply(slope, h), positive=False)
    if library == "nnx":
        return behind_a_layer(nnx.PReLU(), positive=False)
    return behind_a_layer(jax.vmap(eqx.nn.PReLU()), positive=False)


def narrowed(apply: Any, params: Any, x: Any) -> tuple[Program, Any, list[Operation], list[Operation]]:
    """The program, the model with a 16-bit result of its only layer, and the operations before and after."""
    program = capture(apply, params, (x,))
    (name,) = (layer.name for layer in program.layers if layer.kind in ("matmul", "conv") and layer.searchable)
    model = prepare(apply, params, make_policy(program, {name: NARROW}), program=program)
    return (
        program,
        model,
        operations(jax.make_jaxpr(apply)(params, x)),
        operations(jax.make_jaxpr(model)(model.params, x)),
    )


def stays_close(model: Any, apply: Any, params: Any, x: Any, roundings: int) -> None:
    """Dtype and shape as they were, and no farther off than the reference itself is when its layer is moved so far.

    The reference is run on weights and inputs that are moved by all roundings at once, up or down at random.
    """
    reference = jax.jit(apply)
    found, expected = jax.jit(model)(model.params, x), reference(params, x)
    assert (found.shape, found.dtype) == (expected.shape, jnp.float32)
    reach = roundings * ROUNDING

    def moved(tree: Any, seed: int) -> Any:
        signs = np.random.default_rng(seed)
        shift = lambda leaf: leaf * (1 + reach * signs.choice([-1, 1], np.shape(leaf)).astype(np.float32))
        return jax.tree_util.tree_map(lambda leaf: shift(leaf) if leaf.dtype == np.float32 else leaf, tree)

    answers = [np.linalg.norm(reference(moved(params, seed), moved(x, -seed % 97)) - expected) for seed in range(1, 4)]
    assert np.linalg.norm(found - expected) <= max(answers) + ROUNDING * np.linalg.norm(expected)


@pytest.mark.parametrize("names", ACTIVATIONS)
def test_an_activation_runs_narrow_or_stays_as_written(names: str) -> None:
    apply, params, x = behind_a_layer(ACTIVATIONS[names], names.rsplit(".")[-1] in POSITIVE)
    check_activation(apply, params, x)


# Of one prediction per number; Flax brings optax along.
LOSSES = {
    "squared_error": optax.squared_error,
    "l2_loss": optax.l2_loss,
    "huber_loss": optax.huber_loss,
    "log_cosh": optax.log_cosh,
    "softmax_cross_entropy": lambda h: optax.softmax_cross_entropy(h, jax.nn.one_hot(jnp.arange(6), 16)),
    "integer_labels": lambda h: optax.softmax_cross_entropy_with_integer_labels(h, jnp.arange(6)),
    "sigmoid_binary_cross_entropy": lambda h: optax.sigmoid_binary_cross_entropy(h, jnp.ones(h.shape)),
    "cosine_similarity": lambda h: optax.cosine_similarity(h, jnp.ones(h.shape), epsilon=1e-6),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_stays_as_written(name: str) -> None:
    apply, params, x = behind_a_layer(LOSSES[name], positive=False)
    assert check_activation(apply, params, x) == set()


@pytest.mark.parametrize("library", ["linen", "nnx", "equinox"])
def test_an_activation_with_a_parameter_runs_narrow(library: str) -> None:
    assert check_activation(*prelu(library)) >= {"mul", "select_n"}


def check_activation(apply: Any, params: Any, x: Any) -> set[str]:
    """The rules hold; the bias runs narrow, and of the activation all of the closed list, or nothing."""
    _, model, before, after = narrowed(apply, params, x)
    assert list(violations(after)) == []
    assert any(operation.is_narrow and operation.name == "add" and operation.scope == "fc" for operation in after)
    own = [operation for operation in behind_products(after) if operation.scope != "fc"]
    assert len(own) == len([operation for operation in behind_products(before) if operation.scope != "fc"])
    is_plain = not any(operation.name in SENSITIVE for operation in own)
    for operation in own:
        listed = operation.name in ARITHMETIC | MOVEMENT and bool(operation.formats)
        assert operation.is_narrow == (is_plain and listed), operation
    stays_close(model, apply, params, x, roundings=3 + sum(operation.is_narrow for operation in after))
    return {operation.name for operation in own if operation.is_narrow}


@pytest.mark.parametrize("name", norms())
def test_a_norm_stays_as_written(name: str) -> None:
    apply, params, x = make(name)
    _, model, before, after = narrowed(apply, params, x)
    assert list(violations(after)) == []
    written, found = behind_products(before), behind_products(after)
    if name.split("/")[1] not in OF_WEIGHTS:
        assert [operation.name for operation in found] == [operation.name for operation in written]
        assert any(operation.name in ("rsqrt", "sqrt", "div") for operation in written) or name.endswith("BatchNorm")
    # Around a layer the libraries move axes; that is none of the norm's arithmetic.
    assert {operation.name for operation in found if operation.is_narrow} <= MOVEMENT
    stays_close(model, apply, params, x, roundings=4)


@pytest.mark.parametrize("name", [name for name in norms() if name.split("/")[1] in OF_WEIGHTS])
def test_a_norm_of_weights_is_computed_before_they_are_rounded(name: str) -> None:
    apply, params, x = make(name)
    program = capture(apply, params, (x,))
    (layer,) = (layer.name for layer in program.layers if layer.kind == "matmul")
    model = prepare(apply, params, make_policy(program, {layer: "f32/f32/f32->bf16"}), program=program)
    expected = jax.jit(apply)(params, x)
    np.testing.assert_allclose(jax.jit(model)(model.params, x), expected, rtol=ROUNDING * 1.01, atol=1e-6)


def test_all_of_the_libraries_is_covered() -> None:
    kinds = {"BatchNorm", "GroupNorm", "LayerNorm", "RMSNorm", "SpectralNorm"}
    assert {f"{library}/{kind}" for library in ("linen", "nnx", "equinox", "haiku") for kind in kinds} <= set(norms())
    names = " = ".join(ACTIVATIONS)
    for needed in ("jax.nn.gelu", "linen.silu", "nnx.softplus", "linen.normalize", "jax.nn.softmax", "nnx.identity"):
        assert needed in names
    functions = {
        name for name, value in vars(linen).items() if callable(value) and value is getattr(jax.nn, name, None)
    }
    assert {name for name in functions - NO_ACTIVATIONS.keys() if f"linen.{name}" not in names} == set()


def test_the_lists_of_the_rules_are_those_of_the_specification() -> None:
    """The closed list has nothing of the sensitive one, and the tuner's own lists say the same as the rules here."""
    from tuner.program.regions import NARROW as CLOSED
    from tuner.program.sensitive import SENSITIVE as TUNERS

    assert narrow_rules.ALLOWED <= CLOSED
    assert narrow_rules.SENSITIVE <= TUNERS
    assert not CLOSED & TUNERS
