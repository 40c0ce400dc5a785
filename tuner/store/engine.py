"""One SQLite file, opened the same way by everyone who uses it: our tables and Optuna's live in it together."""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url
from sqlalchemy.engine import URL, Connection
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool, QueuePool

from tuner.errors import StoreError
from tuner.store.problems import translate

_WRITES = "tuner_writes"
_JSON = partial(json.dumps, ensure_ascii=False, allow_nan=False)


def locate(storage: str | Path) -> tuple[str, Path]:
    """(URL, file) that a URL or a plain path names.

    Raises:
        StoreError: it names no SQLite file.
    """
    remedy = "write sqlite:///FILE, for example sqlite:///precision.db"
    if isinstance(storage, Path) or "://" not in storage:
        storage = str(storage)
        url = URL.create("sqlite", database=storage)
    else:
        try:
            url = make_url(storage)
        except (ArgumentError, ValueError):
            raise StoreError(f"storage {storage!r} is not a database URL; {remedy}") from None
    shown = url.render_as_string() if url.password else str(storage)  # hides a password
    if url.get_backend_name() != "sqlite":
        raise StoreError(f"storage {shown!r} is not available yet: studies are kept in SQLite files; {remedy}")
    if not url.database or url.database == ":memory:" or url.query:
        raise StoreError(f"storage {shown!r} names no file that processes can share; {remedy}")
    return url.render_as_string(hide_password=False), Path(url.database)


def engine_options(timeout_s: float) -> dict[str, Any]:
    """Arguments for `sqlalchemy.create_engine` with which an engine sets our pragmas on every connection it makes.

    Optuna's `RDBStorage(store.url, engine_kwargs=store.engine_options)` takes them as they are.
    """
    # The pool's own events, not listeners on the engine: whoever gets these may connect in its constructor.
    return {
        "connect_args": {"timeout": timeout_s},
        # Optuna never closes its engine; without a pool every connection is closed after its transaction.
        "poolclass": NullPool,
        "pool_events": [(partial(_set_pragmas, timeout_s), "connect")],
    }


def writable_engine(url: str, timeout_s: float) -> Engine:
    """An engine on the file, which is made when it does not exist."""
    options = engine_options(timeout_s)
    options["poolclass"] = QueuePool
    options["pool_events"].append((_leave_transactions_to_us, "connect"))
    return _with_begin(create_engine(url, json_serializer=_JSON, **options))


def reading_engine(file: Path, timeout_s: float) -> Engine:
    """An engine that can neither make nor change the file."""

    def connect() -> sqlite3.Connection:
        journal = file.with_name(file.name + "-wal")
        if is_read_only(file) and not journal.exists():
            # Nobody is at it: read without locks, since SQLite cannot take away the journal files it would make.
            return _open_to_read(f"{file.resolve().as_uri()}?immutable=1", timeout_s)
        try:
            # Not mode=ro: the last to close such a connection leaves SQLite's journal files behind.
            return _open_to_read(f"{file.resolve().as_uri()}?mode=rw", timeout_s)
        except sqlite3.OperationalError:
            # In a folder without write permission SQLite cannot make its lock files. Nobody can write there, so unless
            # a journal with unsaved pages lies there it is safe to read without locks.
            if not file.exists() or (journal.exists() and journal.stat().st_size):
                raise
            return _open_to_read(f"{file.resolve().as_uri()}?immutable=1", timeout_s)

    return _with_begin(create_engine("sqlite://", creator=connect, json_serializer=_JSON, poolclass=QueuePool))


def is_read_only(file: Path) -> bool:
    """True when this process may read the file and not change it."""
    return may(file, os.R_OK) and not may(file, os.W_OK)


def may(path: Path, mode: int) -> bool:
    """`os.access` for who this process acts as, where the system can say."""
    return os.access(path, mode, effective_ids=os.access in os.supports_effective_ids)


class Sessions:
    """Transactions on one file; whatever the database raises in one leaves it as a StoreError."""

    def __init__(self, engine: Engine, file: Path) -> None:
        self.engine = engine
        self.file = file

    def translating(self) -> AbstractContextManager[None]:
        """For code that uses the same file through Optuna: what its database raises becomes a StoreError."""
        return translated(self.file)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that sees one state of the file throughout, and changes nothing."""
        with translated(self.file), Session(self.engine, autoflush=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that commits at its end, or leaves no trace. It waits for other writers when it begins."""
        writer = self.engine.execution_options(**{_WRITES: True})
        with translated(self.file), Session(writer, expire_on_commit=False) as session, session.begin():
            yield session


@contextmanager
def writing_connection(engine: Engine) -> Iterator[Connection]:
    """A connection in one write transaction."""
    with engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Turns what SQLAlchemy raises inside, itself or wrapped once by Optuna, into a StoreError about the file."""
    try:
        yield
    except Exception as problem:
        cause = problem if isinstance(problem, SQLAlchemyError) else problem.__cause__
        if isinstance(problem, StoreError) or not isinstance(cause, SQLAlchemyError):
            raise
        raise translate(cause, file) from problem


def _open_to_read(uri: str, timeout_s: float) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("PRAGMA query_only=ON")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # opening is lazy: fail here or never
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _set_pragmas(timeout_s: float, connection: sqlite3.Connection, _record: object) -> None:
    connection.execute("PRAGMA foreign_keys=ON")
    # With a write-ahead log a killed process loses nothing and a power cut at most the last commits.
    connection.execute("PRAGMA synchronous=NORMAL")
    _retry_while_locked(lambda: _use_write_ahead_log(connection), timeout_s)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        connection.execute("PRAGMA journal_mode=WAL").fetchone()


def _retry_while_locked(action: Callable[[], None], timeout_s: float) -> None:
    """SQLite does not wait for others when it changes the journal mode, so that two first openers would collide."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return action()
        except sqlite3.OperationalError as problem:
            if not problem.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def _leave_transactions_to_us(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # else the driver begins transactions late, and never for reading


def _with_begin(engine: Engine) -> Engine:
    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A writer takes its lock at once: one that reads first and writes later cannot wait for another writer.
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine
