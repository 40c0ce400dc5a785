"""What all adapters have in common, and the libraries that need none."""

import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.example_libraries import stax

from tests.libraries import batch, check, settings
from tests.programs import normal
from tuner import Task
from tuner.adapters import equinox, haiku, keras, linen, nnx
from tuner.adapters.nested import by_name, carry, nest, separate
from tuner.errors import InputError
from tuner.program import capture


def test_stax_needs_no_adapter():
    branch = stax.serial(stax.Conv(4, (3, 3), padding="SAME"), stax.BatchNorm(), stax.Relu)
    residual = stax.serial(stax.FanOut(2), stax.parallel(branch, stax.Identity), stax.FanInSum)
    init, apply = stax.serial(stax.Conv(4, (3, 3)), stax.Relu, residual, stax.Flatten, stax.Dense(3))
    _, params = init(jax.random.key(0), (-1, 8, 8, 3))
    task = Task(apply=apply, params=params, **settings(normal(8, 8, 8, 3)))
    check(task, ["0", "2/1/0/0", "4"], jax.jit(apply)(params, *batch(task)), precisions=("bf16/bf16/f32",))


def test_a_plain_function_may_carry_state_too():
    apply = lambda params, x: (x - params["~state"]["mean"]) @ params["~state"]["rotation"] @ params["dense"]["w"]
    params = {"dense": {"w": normal(6, 3)}, "~state": {"mean": normal(6), "rotation": normal(6, 6)}}
    program = capture(apply, params, (normal(8, 6),))
    assert [(layer.name, layer.searchable) for layer in program.layers] == [
        ("input", True),
        ("~state/rotation", False),
        ("dense", True),
    ]


def test_nor_does_a_plain_function():
    apply = lambda params, x: x @ params["dense"]["w"]
    task = Task(apply=apply, params={"dense": {"w": normal(6, 3)}}, **settings(normal(8, 6)))
    check(task, ["dense"], jax.jit(apply)(task.params, *batch(task)))


@pytest.mark.parametrize(
    ("adapter", "arguments", "package", "extra"),
    [
        (nnx, (None,), "flax", "flax"),
        (linen, (None, {}), "flax", "flax"),
        (equinox, (None,), "equinox", "equinox"),
        (haiku, (None, {}), "haiku", "haiku"),
        (keras, (None,), "keras", "keras"),
    ],
)
def test_a_missing_library_is_named_with_the_extra_that_installs_it(adapter, arguments, package, extra, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        InputError, match=rf"needs {package}.*not installed; run: pip install 'jax-precision-tuner\[{extra}\]'"
    ):
        adapter.to_function(*arguments)


def test_importing_the_adapters_loads_no_library():
    code = (
        "import sys; from tuner.adapters import equinox, haiku, keras, linen, nnx; "
        "sys.exit(any(name in sys.modules for name in ('jax', 'flax', 'equinox', 'haiku', 'keras')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_tree_becomes_a_dict_of_names_and_comes_back():
    tree = {"a": [np.ones(2), {"b": np.zeros(3)}], "c": (np.arange(2),)}
    nested, back = by_name(tree)
    assert {name: list(part) for name, part in nested.items()} == {"a": ["0", "1"], "c": ["0"]}
    doubled = jax.tree_util.tree_map(lambda leaf: leaf * 2, nested)
    jax.tree_util.tree_map(np.testing.assert_array_equal, back(doubled), jax.tree_util.tree_map(lambda x: x * 2, tree))


def test_two_arrays_in_one_place_are_refused():
    for paths in ([("a", "b"), ("a", "b")], [("a",), ("a", "b")], [("a", "b"), ("a",)]):
        with pytest.raises(InputError, match=r"two arrays of the model are called a(/b)?; give one of the layers"):
            nest(paths, [1, 2])


def test_what_is_carried_lies_beside_the_parameters():
    together = carry({"dense": 1}, batch_stats={"mean": 2}, rngs=None)
    assert together == {"dense": 1, "~batch_stats": {"mean": 2}}
    assert separate(together) == ({"dense": 1}, {"batch_stats": {"mean": 2}})
