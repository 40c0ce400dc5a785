import json

import pytest

from tests.factories import DEVICE, make_policy
from tests.test_files import largest_file
from tuner.errors import PolicyError
from tuner.policy import ProgramSignature
from tuner.policy_file import (
    device_text,
    diff_policies,
    load_policy,
    policy_schema,
    policy_to_text,
    save_policy,
)
from tuner.scales import LayerScales

TPU = {"platform": "tpu", "kind": "TPU v5e", "jaxlib": "0.10.2"}


def refusal(function, *args, **kwargs):
    with pytest.raises(PolicyError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def test_a_file_has_one_line_per_layer_in_model_order():
    policy = make_policy("original", "i8/i8/i32", provenance={"study": "digits", "trial": 7, "device": DEVICE})
    assert (
        policy_to_text(policy)
        == """\
{
  "format": 1,
  "layers": [
    {"name": "input", "kind": "input", "shape": [], "precision": "original", "kernel": "plain"},
    {"name": "dense_0", "kind": "matmul", "shape": [64, 32], "precision": "i8/i8/i32", "kernel": "plain"},
    {"name": "dense_1", "kind": "matmul", "shape": [32, 10], "precision": "original", "kernel": "plain"}
  ],
  "inputs": {"tuple": [{"shape": [8, 64], "dtype": "float32"}]},
  "provenance": {
    "study": "digits",
    "trial": 7,
    "device": {"platform": "cpu", "kind": "Test CPU", "jaxlib": "0.10.2", "threads": "2"}
  }
}
"""
    )


def test_saved_and_loaded_are_equal(tmp_path):
    policy = make_policy(
        "bf16", "i8/i8/i32", scales=(("dense_0", LayerScales(scale=(0.1, 1e-30))),), provenance={"trial": 7}
    )
    assert save_policy(policy, tmp_path / "policy.json") == tmp_path / "policy.json"
    loaded = load_policy(tmp_path / "policy.json")
    assert loaded == policy
    assert loaded.program == policy.program
    assert loaded.provenance == policy.provenance


def test_a_policy_saves_itself_and_never_over_another_file():
    policy = make_policy()
    policy.save("policy.json")
    assert "policy.json exists and is not overwritten" in refusal(make_policy("bf16").save, "policy.json")
    assert load_policy("policy.json") == policy
    make_policy("bf16").save("policy.json", force=True)
    assert load_policy("policy.json") == make_policy("bf16")


def test_a_full_disk_leaves_nothing(tmp_path):
    with largest_file(100):
        message = refusal(save_policy, make_policy(), "policy.json")
    assert "policy.json cannot be written: file too large; nothing was left there; free space there" in message
    assert list(tmp_path.iterdir()) == []


def test_a_layer_may_have_any_name():
    names = ('quoted "name"', "Größe/0", "line\nbreak", "\u2028")
    signature = ProgramSignature(layers=tuple((name, "matmul", (2, 2)) for name in names), inputs="")
    policy = make_policy(program=None)
    policy = type(policy)(tuple((name, policy["input"]) for name in names), program=signature)
    policy.save("policy.json")
    assert load_policy("policy.json") == policy


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "policy.json is empty; export it again with `tuner export`"),
        (b"  \n", "policy.json is empty"),
        (b'{"format": 1, "layers": [', "policy.json is cut off or not JSON (Expecting value: line 1 column 26"),
        (b"layers: []", "policy.json is cut off or not JSON"),
        (b"\xff\xfe\x00", "policy.json is not a text file; give a policy written by `tuner export`"),
        (b'{"format": NaN}', "policy.json is cut off or not JSON (NaN is no JSON number)"),
        (b'{"format": 1, "format": 1, "layers": []}', "(field 'format' twice in one object)"),
        (b"[" * 100_000, "policy.json is nested too deeply for a policy"),
        (b'{"format": 3, "layers": "in a way of the future"}', "policy.json is of policy format 3, newer than the 2"),
        (b'{"format": ' + b"9" * 5000 + b"}", "policy.json is cut off or not JSON"),
        (b"null", "policy.json: the whole is null where an object belongs"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, content, message):
    (tmp_path / "policy.json").write_bytes(content)
    assert message in refusal(load_policy, "policy.json")


def test_every_truncation_of_a_file_is_noticed(tmp_path):
    text = policy_to_text(make_policy("bf16", "i8/i8/i32")).rstrip()
    for length in range(len(text)):
        (tmp_path / "policy.json").write_text(text[:length])
        assert "policy.json is" in refusal(load_policy, "policy.json")


def test_a_byte_order_mark_is_no_mistake(tmp_path):
    (tmp_path / "policy.json").write_text(policy_to_text(make_policy()), encoding="utf-8-sig")
    assert load_policy("policy.json") == make_policy()


def test_a_missing_file_or_a_folder_is_named(tmp_path):
    assert refusal(load_policy, "gone.json") == (
        "gone.json does not exist; write one with `tuner export STUDY -o gone.json`"
    )
    assert ". cannot be read: is a directory; give a policy file that you may read" in refusal(load_policy, ".")


def saved(name, device, **provenance):
    make_policy(provenance={"device": device, **provenance}).save(name)
    return name


def test_of_several_files_the_one_for_the_device_is_taken():
    files = [saved("tpu.json", TPU), saved("cpu.json", DEVICE)]
    assert load_policy(files, device=DEVICE).provenance["device"] == DEVICE
    assert load_policy(files, device=TPU).provenance["device"] == TPU
    assert load_policy(files, device="tpu").provenance["device"] == TPU
    assert load_policy(files, device="Test CPU").provenance["device"] == DEVICE


def test_of_several_for_the_device_the_closest_circumstances_win():
    older, newer = DEVICE | {"jaxlib": "0.9.0"}, DEVICE | {"jaxlib": "0.10.2"}
    files = [saved("a.json", older), saved("b.json", newer)]
    assert load_policy(files, device=newer).provenance["device"] == newer
    assert load_policy(files, device=older).provenance["device"] == older
    assert load_policy(files, device=DEVICE | {"jaxlib": "0.11.0"}).provenance["device"] == older  # the first


def test_without_one_for_the_device_the_devices_are_named():
    files = [saved("tpu.json", TPU)]
    make_policy().save("hand.json")
    assert refusal(load_policy, [*files, "hand.json"], device=DEVICE) == (
        "no policy for this device (cpu Test CPU): tpu.json is for tpu TPU v5e, hand.json is for no recorded device; "
        "search on this device, or load one of them by its path alone"
    )
    assert "no policy for this device (gpu)" in refusal(load_policy, "tpu.json", device="gpu")
    assert "no policy files were given" in refusal(load_policy, [], device=DEVICE)


def test_one_file_is_loaded_whatever_its_device():
    assert device_text(load_policy(saved("tpu.json", TPU))) == "tpu TPU v5e"


def test_by_default_the_device_is_the_one_jax_uses():
    from tuner.measure import device_fingerprint

    here = dict(device_fingerprint())
    files = [saved("tpu.json", TPU), saved("here.json", here)]
    assert load_policy(files).provenance["device"] == here


def test_a_diff_names_the_layers_that_differ():
    before = make_policy("original", "i8/i8/i32", scales=(("dense_1", LayerScales(scale=(1.0,))),))
    after = make_policy("original", "bf16/bf16/f32", scales=(("dense_1", LayerScales(scale=(2.0,))),))
    first, second = diff_policies(before, after)
    assert (first.name, str(first.before), str(first.after)) == ("dense_0", "i8/i8/i32", "bf16/bf16/f32")
    assert not first.only_scales
    assert (second.name, second.only_scales) == ("dense_1", True)
    assert diff_policies(before, before) == []


def test_a_diff_of_policies_for_different_programs_shows_what_one_lacks():
    whole = make_policy()
    part = type(whole)(whole.assignments[:2])
    (gone,) = diff_policies(whole, part)
    assert (gone.name, str(gone.before), gone.after) == ("dense_1", "original", None)
    (new,) = diff_policies(part, whole)
    assert (new.name, new.before, str(new.after)) == ("dense_1", None, "original")


def test_every_field_of_the_schema_is_described():
    def undescribed(schema, path=""):
        for name, field in schema.get("properties", {}).items():
            if "description" not in field and "$ref" not in field:
                yield f"{path}/{name}"
            yield from undescribed(field, f"{path}/{name}")

    schema = policy_schema()
    assert [*undescribed(schema), *(hit for part in schema["$defs"].values() for hit in undescribed(part))] == []
    assert json.dumps(schema)
