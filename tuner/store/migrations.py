"""The schema ledger: named steps, each applied once and in one transaction with its record.

History:
    1_first_schema   study, layer, candidate, measurement, front, probe.
    2_noise          measurement: p95, p99, throughput, calls, baseline, contended. study: refused.
    3_metrics        measurement: metrics. study: constraints.
    4_shapes         measurement: shapes.
    5_screening      effect. candidate: predicted.
    6_kernels        study: kernels.

To change the schema: change models.py, append a Migration that brings the tables of the previous version there, and
keep a database of the previous version in tests/assets. A new database is made from the models and marked with every
step; an old one takes the steps that it has not seen.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import JSON, Column, Connection, Double, Engine, Integer, String, insert, inspect, select, text
from sqlalchemy.schema import CreateColumn

import tuner
from tuner.errors import StoreError
from tuner.store.engine import writing_connection
from tuner.store.models import Base, SchemaRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Migration:
    """One step of the schema."""

    name: str
    # Brings the tables from the step before to this one, inside a transaction that it neither begins nor ends.
    apply: Callable[[Connection], None]


def _add_noise(connection: Connection) -> None:
    numbers: list[Column[Any]] = [Column(name, Double()) for name in ("latency_p95_ms", "latency_p99_ms", "throughput")]
    others: list[Column[Any]] = [
        Column("latency_calls", Integer()),
        Column("latency_baseline", String(20)),
        Column("contended", String()),
    ]
    _add_columns(connection, "tuner_measurement", *numbers, *others)
    _add_columns(connection, "tuner_study", Column("refused", JSON()))


def _add_metrics(connection: Connection) -> None:
    _add_columns(connection, "tuner_measurement", Column("metrics", JSON()))
    _add_columns(connection, "tuner_study", Column("constraints", JSON()))


def _add_shapes(connection: Connection) -> None:
    _add_columns(connection, "tuner_measurement", Column("shapes", JSON()))


def _add_screening(connection: Connection) -> None:
    Base.metadata.tables["tuner_effect"].create(connection)
    _add_columns(connection, "tuner_candidate", Column("predicted", JSON()))


def _add_kernels(connection: Connection) -> None:
    _add_columns(connection, "tuner_study", Column("kernels", JSON()))


def _add_columns(connection: Connection, table: str, *columns: Column[Any]) -> None:
    """Columns that may be null, at the end of a table."""
    for column in columns:
        connection.execute(
            text(f"ALTER TABLE {table} ADD COLUMN {CreateColumn(column).compile(dialect=connection.dialect)}")
        )


MIGRATIONS: tuple[Migration, ...] = (
    Migration(name="1_first_schema", apply=Base.metadata.create_all),
    Migration(name="2_noise", apply=_add_noise),
    Migration(name="3_metrics", apply=_add_metrics),
    Migration(name="4_shapes", apply=_add_shapes),
    Migration(name="5_screening", apply=_add_screening),
    Migration(name="6_kernels", apply=_add_kernels),
)


def pending(engine: Engine, file: Path) -> list[Migration] | None:
    """The steps that the database has not seen; None when it holds none of our tables.

    Raises:
        StoreError: it was written by a newer version.
    """
    with engine.connect() as connection:
        return _pending(connection, file)


def upgrade(engine: Engine, file: Path) -> None:
    """Makes our tables where there are none, and brings older ones up to date.

    Raises:
        StoreError: the database was written by a newer version.
    """
    if pending(engine, file) is None:
        with writing_connection(engine) as connection:
            if _pending(connection, file) is None:  # nobody else was faster
                Base.metadata.create_all(connection)
                for migration in MIGRATIONS:
                    _record(connection, migration)
    while pending(engine, file):
        with writing_connection(engine) as connection:
            for migration in (_pending(connection, file) or [])[:1]:
                migration.apply(connection)
                _record(connection, migration)


def _pending(connection: Connection, file: Path) -> list[Migration] | None:
    if not inspect(connection).has_table(SchemaRow.__tablename__):
        return None
    seen = connection.execute(select(SchemaRow.name, SchemaRow.tool_version)).all()
    known = {migration.name for migration in MIGRATIONS}
    for name, version in seen:
        if name not in known:
            raise StoreError(
                f"{file} was written by jax-precision-tuner {version}, whose schema {name!r} is newer than this version "
                f"({tuner.__version__}); upgrade with `pip install -U jax-precision-tuner`, or choose another file "
                "with --storage sqlite:///FILE"
            )
    names = {name for name, _ in seen}
    return [migration for migration in MIGRATIONS if migration.name not in names]


def _record(connection: Connection, migration: Migration) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    connection.execute(insert(SchemaRow).values(name=migration.name, applied=now, tool_version=tuner.__version__))
