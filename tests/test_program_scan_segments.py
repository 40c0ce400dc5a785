"""Scans whose iterations take different precisions."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tuner
from tuner.errors import PolicyError
from tuner.measure.hlo import parse_hlo
from tuner.program import capture, make_policy, original_policy, prepare, segment_leaders, uniform_policy

DEPTH, WIDTH = 5, 8
RNG = np.random.default_rng(0)
PARAMS = {
    "embed": RNG.standard_normal((WIDTH, WIDTH), np.float32),
    "blocks": {
        "scale": RNG.standard_normal((DEPTH, WIDTH), np.float32) + 1,
        "up": RNG.standard_normal((DEPTH, WIDTH, 2 * WIDTH), np.float32) / WIDTH,
        "down": RNG.standard_normal((DEPTH, 2 * WIDTH, WIDTH), np.float32) / WIDTH,
    },
}
X = RNG.standard_normal((4, WIDTH), np.float32)


def scanned(params, x, reverse=False):
    def block(x, p):
        hidden = jax.nn.relu((x * p["scale"]) @ p["up"])
        x = x + hidden @ p["down"]
        return x, x.mean(1)

    last, means = jax.lax.scan(block, x @ params["embed"], params["blocks"], reverse=reverse)
    return last, means


def looped(params, x, reverse=False):
    means = [None] * DEPTH
    x = x @ params["embed"]
    for i in range(DEPTH)[:: -1 if reverse else 1]:
        p = jax.tree.map(lambda leaf, i=i: leaf[i], params["blocks"])
        hidden = jax.nn.relu((x * p["scale"]) @ p["up"])
        x = x + hidden @ p["down"]
        means[i] = x.mean(1)
    return x, jnp.stack(means)


def split(apply=scanned):
    return capture(apply, PARAMS, (X,), split_scans=True)


def opcodes(compiled):
    return Counter(instruction.opcode for _, instruction in parse_hlo(compiled.as_text()))


def scans_in(prepared):
    return str(jax.make_jaxpr(prepared)(prepared.params, X)).count("scan[")


def test_every_iteration_is_a_layer_of_its_own():
    layers = split().layers
    names = [layer.name for layer in layers]
    assert names[:4] == ["input", "embed", "blocks/up/0", "blocks/down/0"]
    assert names[-2:] == [f"blocks/up/{DEPTH - 1}", f"blocks/down/{DEPTH - 1}"]
    assert len(names) == 2 + 2 * DEPTH
    up = layers[2]
    assert (up.shape, up.params, up.executions) == ((WIDTH, 2 * WIDTH), 2 * WIDTH * WIDTH, 1)
    assert up.flops == 2 * 4 * WIDTH * 2 * WIDTH


def test_work_and_parameters_are_those_of_the_whole():
    whole, by_iteration = capture(scanned, PARAMS, (X,)).layers, split().layers
    assert sum(layer.flops for layer in whole) == sum(layer.flops for layer in by_iteration)
    assert sum(layer.params for layer in whole) == sum(layer.params for layer in by_iteration)


def test_all_original_is_the_scan_as_written():
    program = split()
    prepared = prepare(scanned, PARAMS, original_policy(program), program=program)
    ours = jax.jit(prepared).lower(prepared.params, X).compile()
    theirs = jax.jit(scanned).lower(PARAMS, X).compile()
    for mine, other in zip(jax.tree.leaves(ours(prepared.params, X)), jax.tree.leaves(theirs(PARAMS, X)), strict=True):
        np.testing.assert_array_equal(mine, other)
    assert opcodes(ours) == opcodes(theirs)


@pytest.mark.parametrize("reverse", [False, True])
def test_one_precision_everywhere_is_still_one_scan(reverse):
    def apply(params, x):
        return scanned(params, x, reverse)

    program = split(apply)
    policy = uniform_policy(program, "i8/i8/i32")
    prepared = prepare(apply, PARAMS, policy, program=program)
    assert scans_in(prepared) == 1
    whole = capture(apply, PARAMS, (X,))
    same = prepare(apply, PARAMS, uniform_policy(whole, "i8/i8/i32"), program=whole)
    for mine, other in zip(prepared(prepared.params, X), same(same.params, X), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "precision", ["i8/i8/i32", "bf16/bf16/f32", "bf16/bf16/bf16", "i8/f32/f32", "bf16/bf16/f32->bf16"]
)
def test_iterations_that_differ_compute_what_a_loop_would(precision, reverse):
    def as_scan(params, x):
        return scanned(params, x, reverse)

    def as_loop(params, x):
        return looped(params, x, reverse)

    chosen = {(1, "up"), (2, "up"), (2, "down"), (4, "down")}
    program = split(as_scan)
    prepared = prepare(as_scan, PARAMS, make_policy(program, {f"blocks/{w}/{i}": precision for i, w in chosen}))
    loop = capture(as_loop, PARAMS, (X,))
    in_order = range(DEPTH)[:: -1 if reverse else 1]
    names = {key: f"blocks/{key[1]}/{in_order.index(key[0])}" for key in chosen}
    expected = prepare(as_loop, PARAMS, make_policy(loop, dict.fromkeys(names.values(), precision)), program=loop)
    for mine, other in zip(prepared(prepared.params, X), expected(expected.params, X), strict=True):
        assert (mine.shape, mine.dtype) == (other.shape, other.dtype)
        # XLA may keep a bf16 result in f32 inside a scan; everything else is the same arithmetic.
        tolerance = 0.02 if precision == "bf16/bf16/bf16" else 2e-5
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


def test_consecutive_equals_share_a_segment():
    program = split()
    policy = make_policy(program, {"blocks/up/1": "bf16/bf16/f32", "blocks/up/2": "bf16/bf16/f32"})
    prepared = prepare(scanned, PARAMS, policy, program=program)
    assert scans_in(prepared) == 3
    leaders = segment_leaders(program, policy)
    assert [leaders[f"blocks/up/{i}"] for i in range(DEPTH)] == [f"blocks/up/{i}" for i in (0, 1, 1, 3, 3)]


def test_each_iteration_is_stored_once():
    program = split()
    one = prepare(scanned, PARAMS, make_policy(program, {"blocks/up/1": "i8/f32/f32"}), program=program)
    original = sum(leaf.nbytes for leaf in jax.tree.leaves(PARAMS))
    wide, scales = 2 * WIDTH * WIDTH * 4, 2 * WIDTH * 4
    assert one.weight_bytes == original - wide + wide // 4 + scales


def test_a_weight_that_all_iterations_share_stays_one_layer():
    def apply(params, x):
        def block(x, weight):
            return x @ weight @ params["embed"], None

        return jax.lax.scan(block, x, params["blocks"]["up"] @ params["blocks"]["down"])[0]

    program = split(apply)
    names = [layer.name for layer in program.layers]
    assert names.count("embed") == 1
    assert len(names) == 2 + DEPTH
    inside = next(name for name in names if name.endswith("/2"))
    prepared = prepare(apply, PARAMS, make_policy(program, {inside: "bf16/bf16/f32", "embed": "i8/f32/f32"}))
    np.testing.assert_allclose(prepared(prepared.params, X), apply(PARAMS, X), rtol=0.1, atol=0.05)


def test_a_loop_over_time_around_it_stays_whole():
    def apply(params, xs):
        def step(carry, x):
            def block(h, weights):
                return jnp.tanh(h @ weights[0]) @ weights[1], None

            carry, _ = jax.lax.scan(block, carry + x, (params["blocks"]["up"], params["blocks"]["down"]))
            return carry, carry

        return jax.lax.scan(step, jnp.zeros(WIDTH), xs)[1]

    program = split(apply)
    assert [layer.executions for layer in program.layers[1:]] == [len(X)] * (2 * DEPTH)
    policy = make_policy(program, {"blocks/up/3": "bf16/bf16/f32", "blocks/down/0": "i8/f32/f32"})
    prepared = prepare(apply, PARAMS, policy, program=program)
    np.testing.assert_allclose(prepared(prepared.params, X), apply(PARAMS, X), rtol=0.1, atol=0.05)


def test_nested_stacks_are_split_along_the_outer_scan():
    stacked = {"w": RNG.standard_normal((3, 2, WIDTH, WIDTH), np.float32) / WIDTH}

    def apply(params, x):
        def outer(x, weights):
            return jax.lax.scan(lambda x, weight: (jnp.tanh(x @ weight), None), x, weights)[0], None

        return jax.lax.scan(outer, x, params["w"])[0]

    program = capture(apply, stacked, (X,), split_scans=True)
    assert [(layer.name, layer.executions) for layer in program.layers[1:]] == [("w/0", 2), ("w/1", 2), ("w/2", 2)]
    prepared = prepare(apply, stacked, make_policy(program, {"w/1": "bf16/bf16/f32"}), program=program)
    np.testing.assert_allclose(prepared(prepared.params, X), apply(stacked, X), rtol=0.02, atol=0.02)


def test_the_policy_file_remembers_how_layers_were_listed(tmp_path):
    policy = make_policy(split(), {"blocks/up/1": "bf16/bf16/f32"})
    read = tuner.load_policy(policy.save(tmp_path / "policy.json"))
    assert read.program is not None
    assert read.program.split_scans
    prepared = tuner.prepare(scanned, PARAMS, read)
    assert scans_in(prepared) == 3
    larger = np.concatenate([X, X])
    np.testing.assert_allclose(prepared(prepared.params, larger)[0][:4], prepared(prepared.params, X)[0], rtol=1e-5)


def test_a_policy_by_iteration_does_not_fit_the_scan_as_a_whole():
    policy = make_policy(split(), {"blocks/up/1": "bf16/bf16/f32"})
    with pytest.raises(PolicyError, match=r"here 'blocks/up' stands for all iterations of a scan; .*split_scans=True"):
        prepare(scanned, PARAMS, policy, program=capture(scanned, PARAMS, (X,)))
