import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.factories import SIGNATURE, make_policy
from tests.programs import normal
from tuner import capture, prepare, uniform_policy
from tuner.errors import PolicyError
from tuner.policy import ProgramSignature
from tuner.policy_fit import check_fits, difference_text, inputs_text


def refusal(function, *args, **kwargs):
    with pytest.raises(PolicyError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def test_a_policy_fits_its_program_whatever_the_inputs():
    policy = make_policy()
    check_fits(policy, SIGNATURE)
    check_fits(policy, ProgramSignature(layers=SIGNATURE.layers, inputs=""))
    check_fits(make_policy(program=None), SIGNATURE)


def test_a_policy_for_another_program_is_refused_by_name():
    fewer = ProgramSignature(layers=SIGNATURE.layers[:2], inputs="")
    remedy = "apply it to the program it was made for, or search this one"
    assert refusal(check_fits, make_policy(), fewer, "policy.json") == (
        "policy.json names layer 'dense_1', which this program does not have (its layers: input, dense_0); " + remedy
    )
    more = ProgramSignature(layers=(*SIGNATURE.layers, ("dense_2", "matmul", (10, 2))), inputs="")
    assert refusal(check_fits, make_policy(), more) == (
        f"the policy says nothing about layer 'dense_2' of this program; {remedy}"
    )
    wider = ProgramSignature(layers=(*SIGNATURE.layers[:2], ("dense_1", "matmul", (32, 100))), inputs="")
    assert refusal(check_fits, make_policy(), wider) == (
        "the policy is for another program: layer 'dense_1' is matmul (32, 10) there and matmul (32, 100) here; "
        + remedy
    )


def test_a_long_list_of_layers_is_shortened():
    many = ProgramSignature(layers=tuple((f"l{i}", "matmul", (1, 1)) for i in range(20)), inputs="")
    assert "l6, l7, ... 12 more)" in refusal(check_fits, make_policy(), many)


def signature(*layers, inputs=""):
    return ProgramSignature(layers=tuple(layers), inputs=inputs)


def test_inputs_of_other_shapes_are_shown_and_so_is_what_can_be_done():
    other = '{"tuple":[{"shape":[8,32],"dtype":"float32"}]}'
    fewer = signature(*SIGNATURE.layers[:2], inputs=other)
    assert refusal(check_fits, make_policy(), fewer) == (
        "the policy names layer 'dense_1', which this program does not have (its layers: input, dense_0); it was made "
        "with inputs float32[8,64], and these are float32[8,32]; apply it to the program it was made for, use shapes "
        "that lead to the same layers, or search this one"
    )


def test_inputs_are_written_as_people_do():
    nested = '{"tuple":[{"shape":[8,64],"dtype":"float32"},{"dict":{"ids":{"shape":[],"dtype":"int32"},"none":null}}]}'
    assert inputs_text(nested) == "float32[8,64], int32[]"
    assert inputs_text("") == inputs_text("{") == ""


def test_a_difference_names_what_is_new_missing_or_of_another_shape():
    a, b, c = (("a", "matmul", (3, 4)), ("b", "matmul", (3, 4)), ("a", "matmul", (3, 5)))
    assert difference_text(signature(a), signature(a)) == ""
    assert difference_text(signature(b), signature(a)) == "it has 'b' and lacks 'a'"
    assert difference_text(signature(a, b), signature(a)) == "it has 'b'"
    assert difference_text(signature(c), signature(a)) == "'a' is matmul (3, 5) instead of matmul (3, 4)"
    assert difference_text(signature(a, b), signature(b, a)) == "they come in another order"


STACK = {"layers": {"w": normal(3, 6, 6)}}
TREE = {"layers": [{"w": normal(6, 6, seed=i)} for i in range(3)]}
X = (normal(2, 6),)


def scanned(params, x):
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, params["layers"]["w"])[0]


def unrolled(params, x):
    for i in range(3):
        x = jnp.tanh(x @ params["layers"]["w"][i])
    return x


def nested(params, x):
    for layer in params["layers"]:
        x = jnp.tanh(x @ layer["w"])
    return x


@pytest.mark.parametrize(("loop", "params"), [(unrolled, STACK), (nested, TREE)])
def test_the_policy_of_a_scan_is_refused_by_the_unrolled_form(loop, params):
    policy = uniform_policy(capture(scanned, STACK, X), "bf16/bf16/f32")
    assert refusal(prepare, loop, params, policy) == (
        "the policy was made for a scan: its layer 'layers' stands for all iterations, and here each iteration has a "
        "layer of its own ('layers/0', 'layers/1', 'layers/2'); apply it to the scan form, or search this one"
    )


@pytest.mark.parametrize(("loop", "params"), [(unrolled, STACK), (nested, TREE)])
def test_and_the_other_way_round(loop, params):
    policy = uniform_policy(capture(loop, params, X), "bf16/bf16/f32")
    assert refusal(prepare, scanned, STACK, policy) == (
        "the policy was made for a loop whose iterations are layers of their own ('layers/0', 'layers/1', 'layers/2'), "
        "and here 'layers' stands for all iterations of a scan; apply it to the unrolled form, capture this one with "
        "split_scans=True, or search it"
    )


def test_the_remedy_works():
    policy = uniform_policy(capture(unrolled, STACK, X), "bf16/bf16/f32")
    model = prepare(scanned, STACK, policy, program=capture(scanned, STACK, X, split_scans=True))
    np.testing.assert_allclose(model(model.params, *X), unrolled(STACK, *X), atol=0.05)


def test_numbers_at_the_end_of_a_part_count_too():
    one, several = ("blocks/fc1", "matmul", (6, 6)), [(f"blocks_{i}/fc1", "matmul", (6, 6)) for i in range(6)]
    policy = make_policy(program=None)
    scan = type(policy)((("blocks/fc1", policy.assignments[0][1]),), program=signature(one))
    assert "('blocks_0/fc1', 'blocks_1/fc1', 'blocks_2/fc1', 'blocks_3/fc1', ... 2 more)" in refusal(
        check_fits, scan, signature(*several)
    )


def test_layers_that_are_merely_numbered_are_another_program():
    policy = make_policy(program=None)
    other = type(policy)((("fc", policy.assignments[0][1]),), program=signature(("fc", "matmul", (6, 6))))
    sentence = refusal(check_fits, other, signature(("fc1", "matmul", (6, 6)), ("fc2", "matmul", (6, 6))))
    assert sentence.startswith("the policy names layer 'fc', which this program does not have")
    wider = refusal(check_fits, other, signature(*((f"fc/{i}", "matmul", (9, 9)) for i in range(2))))
    assert wider.startswith("the policy names layer 'fc', which this program does not have")
