"""Names that people know, unique and stable."""

import jax
import pytest

from tuner.program import naming


def paths(tree: object) -> list[naming.Path]:
    return [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]


@pytest.mark.parametrize("word", ["kernel", "weight", "w", "W", "embedding", "embeddings"])
def test_a_last_part_that_only_says_weight_is_left_out(word: str) -> None:
    assert naming.weight_names([frozenset({0})], paths({"fc": {word: 1}})) == ["fc"]


def test_any_other_last_part_stays() -> None:
    assert naming.weight_names([frozenset({0})], paths({"fc": {"scale": 1}})) == ["fc/scale"]


def test_nothing_is_left_out_when_nothing_would_be_left() -> None:
    assert naming.weight_names([frozenset({0})], paths({"w": 1})) == ["w"]


def test_both_keep_their_path_when_short_names_would_collide() -> None:
    tree = {"fc": {"kernel": 1, "w": 2}}
    assert naming.weight_names([frozenset({0}), frozenset({1})], paths(tree)) == ["fc/kernel", "fc/w"]


def test_a_fused_weight_is_named_by_what_it_joins() -> None:
    tree = {"attn": {"k": {"kernel": 1}, "q": {"kernel": 2}, "v": {"kernel": 3}}}
    assert naming.weight_names([frozenset({0, 1, 2})], paths(tree)) == ["attn/{k,q,v}"]


def test_a_weight_keeps_its_word_beside_what_it_is_joined_with() -> None:
    tree = {"fc": {"lora_a": 1, "lora_b": 2, "w": 3}, "gain": 4}
    assert naming.weight_names([frozenset({0, 1, 2})], paths(tree)) == ["fc/{lora_a,lora_b,w}"]
    assert naming.weight_names([frozenset({2, 3})], paths(tree)) == ["{fc,gain}"]


def test_parts_of_one_parameter_are_numbered() -> None:
    same = frozenset({0})
    assert naming.weight_names([same, same], paths({"qkv": {"kernel": 1}})) == ["qkv/0", "qkv/1"]


def test_numbering_avoids_names_that_are_taken() -> None:
    assert naming.number_repeats(["a", "a", "a/0"]) == ["a/1", "a/2", "a/0"]


def test_operations_are_numbered_per_scope_and_kind() -> None:
    names = naming.operation_names(["attn", "attn", "", "mlp"], ["dot", "dot", "dot", "dot"])
    assert names == ["attn/dot_0", "attn/dot_1", "dot_0", "mlp/dot_0"]


def test_inputs_are_named_by_their_place() -> None:
    assert naming.input_names((1,)) == ["input"]
    assert naming.input_names((1, {"mask": 2})) == ["input/0", "input/1/mask"]
