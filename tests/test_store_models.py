import pytest
from sqlalchemy import LargeBinary, PickleType
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateTable

from tuner.store.models import Base

TABLES = Base.metadata.tables


def test_every_table_of_ours_is_marked_as_ours():
    assert set(TABLES) == {
        f"tuner_{name}" for name in ("study", "layer", "candidate", "measurement", "front", "probe", "effect", "schema")
    }


def test_every_column_says_what_it_holds():
    undescribed = [f"{table.name}.{c.name}" for table in TABLES.values() for c in table.columns if not c.comment]
    assert undescribed == []


def test_every_reference_cascades():
    keys = [key for table in TABLES.values() for key in table.foreign_keys]
    assert {key.ondelete for key in keys} == {"CASCADE"}
    assert len(keys) == 5


def test_nothing_is_kept_pickled():
    columns = [c for table in TABLES.values() for c in table.columns]
    assert not [c for c in columns if isinstance(c.type, PickleType | LargeBinary)]


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()], ids=lambda dialect: dialect.name)
def test_the_tables_can_be_written_for_every_database(dialect):
    for table in TABLES.values():
        assert str(CreateTable(table).compile(dialect=dialect)).strip().startswith("CREATE TABLE tuner_")
