from dataclasses import dataclass, replace

import pytest

from search_spaces import (
    ORIGINAL,
    Group,
    Precision,
    Rule,
    SearchSpace,
    SearchSpaceError,
    describe_preset,
    preset_names,
    preset_text,
)
from search_spaces.rules import KINDS

F32, BF16, W8A8, W8A16, TF32 = (
    Precision.parse(text) for text in ("f32", "bf16/bf16/f32", "w8a8", "w8a16", "tf32/tf32/f32")
)


@dataclass(frozen=True)
class Layer:
    name: str
    kind: str = "matmul"
    searchable: bool = True
    reason: str | None = None


LAYERS = (
    Layer("embed", "embedding"),
    Layer("blocks/0/attn/qkv"),
    Layer("blocks/0/attn/qk", "dot"),
    Layer("blocks/0/mlp"),
    Layer("blocks/1/attn/qkv"),
    Layer("blocks/1/mlp"),
    Layer("head"),
    Layer("loop/w", searchable=False, reason="inside scan"),
)


def anything(layer, precision):
    return None


def space(*rules, **fields) -> SearchSpace:
    return SearchSpace(name="mine", rules=rules, **fields)


def rule(layers="*", *precisions, **fields) -> Rule:
    return Rule(layers=layers, precisions=precisions or (F32, BF16, W8A8), **fields)


def failure(of, layers=LAYERS) -> str:
    with pytest.raises(SearchSpaceError) as caught:
        of.resolve(layers, anything)
    return str(caught.value)


def test_the_first_rule_that_matches_decides():
    choices = space(rule("head", F32), rule("*", BF16)).resolve(LAYERS, anything).choices
    assert choices["head"] == (ORIGINAL, F32)
    assert choices["blocks/0/mlp"] == (ORIGINAL, BF16)


def test_every_layer_is_in_the_choices_in_program_order_with_original_first():
    choices = space(rule("*", BF16, ORIGINAL, F32, BF16)).resolve(LAYERS, anything).choices
    assert list(choices) == [layer.name for layer in LAYERS]
    assert choices["head"] == (ORIGINAL, BF16, F32)


def test_globs_match_across_slashes_and_kinds_narrow_them():
    resolution = space(rule("blocks/*", W8A8, kinds=("matmul",)), rule("blocks/?/attn/*", F32)).resolve(
        LAYERS, anything
    )
    assert resolution.choices["blocks/0/attn/qkv"] == (ORIGINAL, W8A8)
    assert resolution.choices["blocks/0/attn/qk"] == (ORIGINAL, F32)


def test_a_name_with_brackets_matches_itself():
    layers = (Layer("blocks[0]/{q,k,v}"), Layer("blocks0"))
    choices = space(rule("blocks[0]/{q,k,v}", F32)).resolve(layers, anything).choices
    assert choices == {"blocks[0]/{q,k,v}": (ORIGINAL, F32), "blocks0": (ORIGINAL,)}


def test_layers_without_rule_frozen_or_not_searchable_stay_original():
    resolution = space(rule("[!e]*"), freeze=("head", "*/mlp")).resolve(LAYERS, anything)
    for name in ("embed", "head", "blocks/0/mlp", "blocks/1/mlp", "loop/w"):
        assert resolution.choices[name] == (ORIGINAL,)
    assert not resolution.refused


def test_refusals_carry_the_reason_of_the_program_or_of_the_precision():
    def supported(layer, precision):
        return "a look-up multiplies nothing" if layer.kind == "embedding" and precision == W8A8 else None

    resolution = space(rule("*", W8A8, TF32, F32)).resolve(LAYERS, supported)
    assert resolution.choices["embed"] == (ORIGINAL, F32)
    assert resolution.choices["head"] == (ORIGINAL, W8A8, F32)
    assert resolution.refused["embed"][W8A8] == "a look-up multiplies nothing"
    assert resolution.refused["head"] == {TF32: TF32.unavailable}


def test_the_program_is_never_asked_about_original():
    asked = []
    space(rule("*", ORIGINAL, F32)).resolve(LAYERS, lambda layer, precision: asked.append(precision))
    assert set(asked) == {F32}


def test_a_group_shares_what_all_its_members_may_take():
    resolution = space(
        rule("blocks/0/*", F32, BF16, W8A8),
        rule("blocks/1/*", W8A8, BF16),
        rule("*", F32),
        groups=(Group(name="mlps", layers="blocks/*/mlp"),),
    ).resolve(LAYERS, anything)
    assert resolution.groups == {"mlps": ("blocks/0/mlp", "blocks/1/mlp")}
    assert resolution.choices["blocks/0/mlp"] == resolution.choices["blocks/1/mlp"] == (ORIGINAL, BF16, W8A8)
    assert resolution.refused["blocks/0/mlp"] == {
        F32: "the layers of group 'mlps' move together, and 'blocks/1/mlp' may not take it"
    }
    assert resolution.choices["blocks/0/attn/qkv"] == (ORIGINAL, F32, BF16, W8A8)


def test_a_group_leaves_out_members_that_must_stay_original():
    resolution = space(rule(), groups=(Group(name="all", layers="*"),), freeze=("head",)).resolve(LAYERS, anything)
    assert "head" not in resolution.groups["all"]
    assert "loop/w" not in resolution.groups["all"]
    assert resolution.choices["embed"] == (ORIGINAL, F32, BF16, W8A8)


def test_a_group_that_shares_nothing_stays_original_and_says_so():
    resolution = space(rule("blocks/0/*", F32), rule("*", W8A8), groups=(Group(name="mlps", layers="*/mlp"),)).resolve(
        LAYERS, anything
    )
    assert resolution.groups == {}
    assert resolution.choices["blocks/0/mlp"] == resolution.choices["blocks/1/mlp"] == (ORIGINAL,)
    assert F32 in resolution.refused["blocks/0/mlp"]


def test_a_layer_in_two_groups_is_an_error():
    groups = (Group(name="first", layers="blocks/0/*"), Group(name="mlps", layers="*/mlp"))
    assert failure(space(rule(), groups=groups)) == (
        "space 'mine': layer 'blocks/0/mlp' is in two groups, 'first' and 'mlps'; narrow the glob of one of them"
    )


def test_two_groups_of_one_name_are_an_error():
    groups = (Group(name="a", layers="x"), Group(name="a", layers="y"))
    with pytest.raises(SearchSpaceError, match="space 'mine': two groups are called 'a'; rename one"):
        space(rule(), groups=groups)


def test_a_rule_that_matches_nothing_is_an_error_with_layer_names():
    message = failure(space(rule("*"), rule("haed", kinds=("matmul",))), (*LAYERS, Layer("tail"), Layer("end")))
    assert message == (
        "space 'mine': rule 2 (layers 'haed', kinds matmul) matches no layer; the layers are embed (embedding), "
        "blocks/0/attn/qkv (matmul), blocks/0/attn/qk (dot), blocks/0/mlp (matmul), blocks/1/attn/qkv (matmul), "
        "blocks/1/mlp (matmul), head (matmul), loop/w (matmul) and 2 more; correct the glob or write optional = true"
    )


def test_a_rule_whose_kinds_do_not_fit_says_the_kind():
    assert "matches no layer: 'head' is of kind matmul; correct the kinds" in failure(
        space(rule("head", kinds=("conv",)))
    )


def test_a_rule_behind_a_broader_one_is_an_error():
    message = failure(space(rule("*"), rule("head", F32)))
    assert "rule 2 (layers 'head'" in message
    assert "decides for no layer: an earlier rule comes first for 'head'; move the narrower rule up" in message


def test_groups_and_freezes_that_match_nothing_are_errors():
    message = failure(space(rule(), groups=(Group(name="attention", layers="*/atn/*"),)))
    assert "group 'attention' (layers '*/atn/*') matches no layer; the layers are embed" in message
    message = failure(space(rule(), freeze=("haed",)))
    assert "freeze 'haed' matches no layer; the layers are embed" in message


def test_optional_rules_and_groups_may_match_nothing():
    resolution = space(
        rule("*", F32), rule("conv*", W8A8, optional=True), groups=(Group(name="g", layers="conv*", optional=True),)
    ).resolve(LAYERS, anything)
    assert resolution.choices["head"] == (ORIGINAL, F32)
    assert resolution.groups == {}


def test_a_program_without_layers_says_so():
    assert "the program has no layers" in failure(space(rule()), ())
    assert SearchSpace.load("cpu").resolve((), anything).choices == {}


@pytest.mark.parametrize("name", preset_names())
def test_presets_work_on_any_kind_of_program_and_offer_only_what_is_built(name):
    preset = SearchSpace.load(name)
    assert preset.name == name
    assert describe_preset(name) == preset.description != ""
    assert SearchSpace.parse(preset_text(name), name) == preset
    for layers in ([Layer(kind, kind)] for kind in KINDS):
        assert not preset.resolve(layers, anything).refused
    resolution = preset.resolve([Layer(kind, kind) for kind in KINDS], anything)
    assert len(resolution.choices["matmul"]) > 2


def test_the_presets_are_those_of_the_design():
    assert preset_names() == ("cpu", "floats", "gpu", "memory", "tpu")


def test_floats_has_no_integers():
    precisions = {p for r in SearchSpace.load("floats").rules for p in r.precisions}
    assert all(f.kind == "float" for p in precisions for f in (p.weights, p.activations, p.accumulate))


def test_an_unknown_space_lists_only_names_that_load():
    with pytest.raises(SearchSpaceError) as caught:
        SearchSpace.load("gpus")
    assert str(caught.value).startswith("unknown search space 'gpus'; use one of cpu, ")
    assert str(caught.value).endswith(", or a path ending in .toml")
    for name in str(caught.value).partition("use one of ")[2].partition(", or")[0].split(", "):
        SearchSpace.load(name)


def test_a_copied_preset_loads_from_a_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(preset_text("gpu"))
    loaded = SearchSpace.load(path)
    assert loaded == replace(SearchSpace.load("gpu"), name=str(path)) == SearchSpace.load(str(path))


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(SearchSpaceError, match=r"cannot read the search space '.*none.toml': No such file.*; check"):
        SearchSpace.load(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9 \n")
    with pytest.raises(SearchSpaceError, match=r"latin.toml': .* at byte 5; save it as UTF-8"):
        SearchSpace.load(tmp_path / "latin.toml")
