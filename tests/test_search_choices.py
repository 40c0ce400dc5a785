from search_spaces import SearchSpace
from tests.search_bench import make_program
from tuner.search.choices import ChoiceSpace
from tuner.search.spaces import resolve_space

RULES = '[[rules]]\nkinds = ["matmul"]\nprecisions = ["f32/f32/f32", "i8/i8/i32"]\n'
GROUP = '[[groups]]\nname = "pair"\nlayers = "layer_[12]"\n'


def space(text: str = RULES, layers: int = 3) -> ChoiceSpace:
    resolved = resolve_space(SearchSpace.parse(text, "test"), make_program(layers))
    return ChoiceSpace.from_resolution(resolved.resolution)


def test_every_layer_is_one_parameter_even_without_a_choice():
    distributions = space().distributions
    assert list(distributions) == ["input", "layer_0", "layer_1", "layer_2"]
    assert distributions["input"].choices == ("original",)
    assert distributions["layer_0"].choices == ("original", "f32/f32/f32", "i8/i8/i32")


def test_only_leaders_with_a_choice_are_free():
    assert space().free == ("layer_0", "layer_1", "layer_2")
    assert space(RULES + GROUP).free == ("layer_0", "layer_1")


def test_members_of_a_group_follow_their_leader():
    proposal = space(RULES + GROUP).expand({"layer_1": "i8/i8/i32"})
    assert proposal == {"input": "original", "layer_0": "original", "layer_1": "i8/i8/i32", "layer_2": "i8/i8/i32"}


def test_all_lists_every_proposal_once():
    for text, size in ((RULES, 27), (RULES + GROUP, 9)):
        made = space(text)
        listed = list(made.all())
        assert made.size == len(listed) == size
        assert len({made.key(proposal) for proposal in listed}) == size
        assert all(made.contains(proposal) for proposal in listed)


def test_a_proposal_with_other_layers_or_precisions_is_not_contained():
    made = space()
    baseline = made.expand({})
    assert made.contains(baseline)
    assert not made.contains({**baseline, "layer_0": "bf16/bf16/f32"})
    assert not made.contains({"layer_0": "original"})
