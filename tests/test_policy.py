from tests.factories import make_policy


def test_a_policy_is_shown_by_how_many_layers_run_in_what():
    assert repr(make_policy("original", "i8/i8/i32", "i8/i8/i32")) == "Policy(3 layers: 2 x i8/i8/i32, 1 x original)"
