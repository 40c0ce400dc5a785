from dataclasses import replace

import pytest
from sqlalchemy import text

from tests.factories import DEVICE, SIGNATURE, make_confirmation, make_layers, make_measurement, make_policy, make_study
from tuner.errors import StoreError
from tuner.store import Owner, Store


@pytest.fixture
def store():
    with Store.open() as store:
        yield store


def measure(store, study, label="baseline", outcome=None, trial=0):
    claimed = store.claim(study.id, key=label, policy=make_policy(), label=label, trial=trial, owner=Owner.current())
    store.record(claimed, outcome or make_measurement(1.0))
    return claimed


def refusal(function, *args, **kwargs):
    with pytest.raises(StoreError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def test_by_default_the_file_is_precision_db_in_the_working_folder(tmp_path):
    with Store.open() as store:
        assert store.url == "sqlite:///precision.db"
    assert (tmp_path / "precision.db").exists()


def test_a_closed_store_leaves_one_file(tmp_path):
    with Store.open() as store:
        store.create_study(make_study())
    assert [path.name for path in tmp_path.iterdir()] == ["precision.db"]


def test_a_look_leaves_no_other_files_and_changes_nothing(tmp_path):
    with Store.open() as store:
        store.create_study(make_study())
    before = (tmp_path / "precision.db").read_bytes()
    with Store.open(read_only=True) as store:
        assert len(store.studies()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["precision.db"]
    assert (tmp_path / "precision.db").read_bytes() == before


def test_a_study_comes_back_as_it_was(store):
    study = make_study()
    made = store.create_study(study)
    assert made == replace(study, id=made.id)
    assert store.find_study("digits") == made
    assert store.find_or_raise_study("digits") == made
    assert store.studies() == [made]


def test_a_study_lives_longer_than_the_store():
    with Store.open() as store:
        made = store.create_study(make_study())
    with Store.open(create=False) as store:
        assert store.find_study("digits") == made


def test_a_study_of_a_live_task_has_no_reference(store):
    store.create_study(make_study(task_reference=None, program=replace(SIGNATURE, inputs="")))
    study = store.find_study("digits")
    assert study.task_reference is None
    assert study.program == replace(SIGNATURE, inputs="")


def test_the_baseline_is_the_candidate_of_that_label(store):
    study = store.create_study(make_study())
    measure(store, study, "uniform", make_measurement(0.5), trial=1)
    assert store.find_study("digits").baseline is None
    claimed = measure(store, study, "baseline", make_measurement(1.0))
    store.confirm(claimed, make_confirmation(1.1))
    assert store.find_study("digits").baseline == make_measurement(1.0)
    with pytest.raises(ValueError, match="record the baseline as a candidate labelled 'baseline'"):
        store.create_study(make_study("other", baseline=make_measurement()))


def test_a_name_is_used_once(store):
    store.create_study(make_study())
    assert refusal(store.create_study, make_study()) == (
        "study 'digits' exists in precision.db; resume it with the settings it was made with, or choose another "
        "--study name to begin a new study"
    )
    assert len(store.studies()) == 1


def test_an_unknown_study_is_named_with_those_there_are(store):
    assert store.find_study("digits") is None
    assert refusal(store.find_or_raise_study, "digits") == (
        "no study 'digits' in precision.db, which holds none yet; run `tuner search` first"
    )
    store.create_study(make_study("mnist"))
    store.create_study(make_study("fashion"))
    expected = "no study 'digits' in precision.db; choose one of fashion, mnist"
    assert refusal(store.find_or_raise_study, "digits") == expected
    assert refusal(store.remove_study, "digits") == expected


def test_a_removed_study_leaves_nothing_of_itself_and_all_of_the_others(store):
    for name in ("digits", "mnist"):
        study = store.create_study(make_study(name))
        store.save_layers(study.id, make_layers())
        store.confirm(measure(store, study), make_confirmation())
    store.remove_study("digits")
    assert [study.name for study in store.studies()] == ["mnist"]
    with store.reading() as session:
        for table in ("study", "candidate", "measurement", "front", "layer"):
            left = session.execute(text(f"SELECT count(*) FROM tuner_{table}")).scalar_one()
            assert left == {"layer": 3, "measurement": 2}.get(table, 1), table
    assert store.create_study(make_study("digits")).counts.total == 0


def test_layers_are_kept_in_order_and_replaced(store):
    study = store.create_study(make_study())
    assert store.layers(study.id) == ()
    store.save_layers(study.id, make_layers()[::-1])
    store.save_layers(study.id, make_layers())
    assert store.layers(study.id) == make_layers()
    assert "study 7 is no longer in precision.db" in refusal(store.save_layers, 7, make_layers())


def test_the_same_fingerprints_may_go_on(store):
    study = store.create_study(make_study())
    store.check_fingerprints(study, dict(reversed(study.fingerprints.items())), dict(DEVICE))
    store.check_fingerprints(study, study.fingerprints)


@pytest.mark.parametrize(
    ("fingerprints", "device", "message"),
    [
        ({"parameters": "c" * 64}, {}, "was made with parameters bbbbbbbbbbbb..., and this run has cccccccccccc...;"),
        ({"batch_size": "128"}, {}, "was made with batch_size '256', and this run has '128';"),
        ({"data": "d" * 64}, {}, "was made with data no value, and this run has dddddddddddd...;"),
        ({}, {"kind": "TPU v5e"}, "was made with device kind 'Test CPU', and this run has 'TPU v5e';"),
        ({"batch_size": "128"}, {"kind": "TPU v5e"}, "was made with batch_size '256'"),
    ],
)
def test_the_first_different_fingerprint_is_named_with_both_values(store, fingerprints, device, message):
    study = store.create_study(make_study())
    text = refusal(store.check_fingerprints, study, study.fingerprints | fingerprints, DEVICE | device)
    assert text.startswith("study 'digits' of task studies.digits_mlp:task in precision.db was made with ")
    assert message in text
    assert text.endswith("restore the former to resume it, or choose another --study name to begin a new study")


def test_a_fingerprint_that_is_gone_is_named(store):
    study = store.create_study(make_study())
    assert "made with program aaaaaaaaaaaa..., and this run has no value" in refusal(
        store.check_fingerprints, study, {"parameters": "b" * 64, "batch_size": "256"}
    )


def test_what_was_found_out_about_a_device_is_kept_for_that_device_only(store):
    assert store.find_probe(DEVICE, "kernel") is None
    store.save_probe(DEVICE, "kernel", {"plain": 1.5, "transposed": [1, None]})
    store.save_probe(DEVICE, "kernel", {"plain": 1.0})
    store.save_probe(DEVICE | {"threads": "8"}, "kernel", "other")
    assert store.find_probe(dict(reversed(DEVICE.items())), "kernel") == {"plain": 1.0}
    assert store.find_probe(DEVICE, "another") is None


def test_a_store_opened_to_read_cannot_write():
    with Store.open() as store:
        study = store.create_study(make_study())
    with Store.open(read_only=True) as store:
        assert store.studies() == [study]
        for write in (
            lambda: store.create_study(make_study("other")),
            lambda: store.remove_study("digits"),
            lambda: measure(store, study),
            lambda: store.save_probe(DEVICE, "a", 1),
        ):
            assert "precision.db is read-only" in refusal(write)
        assert store.studies() == [study]


def test_a_reader_sees_what_a_search_writes_meanwhile(store):
    study = store.create_study(make_study())
    with Store.open(read_only=True) as reader:
        for trial in range(3):
            measure(store, study, f"label {trial}", trial=trial)
            assert reader.find_study("digits").counts.measured == trial + 1


def test_names_and_texts_may_be_anything(store):
    name = "Größe 'x'; DROP TABLE tuner_study; --"
    store.create_study(make_study(name, space='name = "mine"\n'))
    assert store.find_or_raise_study(name).space == 'name = "mine"\n'
