import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search_spaces import Group, Precision, Rule, SearchSpace, SearchSpaceError
from search_spaces.rules import KINDS

RULE = '[[rules]]\nprecisions = ["bf16"]\n'

some_text = st.text(min_size=1).filter(str.strip)
some_precisions = st.sampled_from([Precision.parse(text) for text in ("original", "f32", "w8a8", "i8/i8/i32@static")])
rules = st.builds(
    Rule,
    layers=some_text,
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, unique=True).map(tuple),
    precisions=st.lists(some_precisions, min_size=1).map(tuple),
    optional=st.booleans(),
)
groups = st.builds(Group, name=some_text, layers=some_text, optional=st.booleans())
spaces = st.builds(
    SearchSpace,
    name=some_text,
    rules=st.lists(rules, min_size=1, max_size=3).map(tuple),
    groups=st.lists(groups, max_size=3, unique_by=lambda group: group.name).map(tuple),
    freeze=st.lists(st.text(), max_size=2).map(tuple),
    description=st.text(),
)


@given(spaces)
@settings(deadline=None)
def test_every_space_is_read_back_from_its_text(space):
    assert SearchSpace.parse(space.to_toml(), space.name) == space


def test_the_text_of_a_space():
    space = SearchSpace.parse(
        'freeze=["head"]\n' + RULE + '[[groups]]\nname="a"\nlayers="x/*"\n[[rules]]\nkinds=["conv"]\n'
        'layers="x"\nprecisions=["w8a8"]\noptional=true',
        "mine",
    )
    assert space.to_toml() == (
        'freeze = ["head"]\n'
        "\n[[rules]]\n"
        'layers = "*"\n'
        'precisions = ["bf16/bf16/bf16"]\n'
        "\n[[rules]]\n"
        'layers = "x"\n'
        'kinds = ["conv"]\n'
        'precisions = ["i8/i8/i32"]\n'
        "optional = true\n"
        "\n[[groups]]\n"
        'name = "a"\n'
        'layers = "x/*"\n'
    )


def test_what_is_left_out_has_a_default():
    rule = SearchSpace.parse(RULE, "mine").rules[0]
    assert (rule.layers, rule.kinds, rule.optional) == ("*", KINDS, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rules = [", "this is not valid TOML: "),
        ("", "there are no rules; add [[rules]] with layers and precisions"),
        (RULE + "[[rule]]\n", "unknown key 'rule'; use one of description, rules, groups, freeze"),
        ("rules = 3", "rules is 3; start each of the rules with a line [[rules]]"),
        ("[rules]\na = 1", "rules is {'a': 1}; start each of the rules with a line [[rules]]"),
        ('freeze = "head"\n' + RULE, "freeze is 'head'; write a list of texts, for example freeze = ["),
        ("description = 1\n" + RULE, "description is 1; write one text in quotes"),
        (
            RULE + "[[rules]]\nprecision = []",
            "rule 2: unknown key 'precision'; use one of layers, kinds, precisions, optional",
        ),
        ("[[rules]]\n", 'rule 1: there are no precisions; add for example precisions = ["bf16/bf16/f32"]'),
        ("[[rules]]\nprecisions = []", 'rule 1: precisions is empty; write ["original"]'),
        ('[[rules]]\nprecisions = "f32"', "rule 1: precisions is 'f32'; write a list of texts"),
        ("[[rules]]\nprecisions = [8]", "rule 1: precisions is [8]; write a list of texts"),
        ('[[rules]]\nprecisions = ["w9a9"]', "rule 1: precisions: unknown precision 'w9a9'; use one of original, "),
        ('[[rules]]\nprecisions = ["i8/i8/f32"]', "rule 1: precisions: precision i8/i8/f32: two integer operands"),
        (RULE + "layers = 3", "rule 1: layers is 3; write one text in quotes"),
        (RULE + 'layers = " "', "rule 1: layers is ' '; write a layer name or a glob"),
        (RULE + "kinds = []", "rule 1: kinds is empty; leave it out for all kinds"),
        (
            RULE + 'kinds = ["dense"]',
            "rule 1: kinds: unknown kind 'dense'; use one of matmul, conv, dot, embedding, input",
        ),
        (RULE + "optional = 1", "rule 1: optional is 1; write true or false"),
        (RULE + '[[groups]]\nlayers = "*"', 'group 1: there is no name; add for example name = "attention"'),
        (RULE + '[[groups]]\nname = "a"', "group 1: there is no layers; add for example layers = "),
        (RULE + '[[groups]]\nname = ""\nlayers = "*"', "group 1: name is ''; give the group a name"),
        (RULE + '[[groups]]\nname = "a"\nlayers = ""', "group 1: layers is ''; write a layer name or a glob"),
    ],
)
def test_errors_name_file_place_value_and_remedy(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(SearchSpaceError) as caught:
        SearchSpace.load(path)
    assert f"space '{path}': {message}" in str(caught.value)


def test_listed_kinds_are_accepted():
    for kind in KINDS:
        SearchSpace.parse(RULE + f'kinds = ["{kind}"]', "mine")
