"""What went wrong with a database, said once: which file, what is the matter, what to do."""

from pathlib import Path

from sqlalchemy.exc import DBAPIError, SQLAlchemyError, StatementError

from tuner.errors import StoreError

_READ_ONLY = "is read-only; make the file and its folder writable, or choose another file with --storage sqlite:///FILE"

# SQLite's name for the problem, or how it begins -> a sentence about the file.
_SENTENCES = (
    (
        ("SQLITE_BUSY", "SQLITE_LOCKED"),
        "is locked by another process; wait for that one to finish or stop it, then run the same command again",
    ),
    (
        ("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH"),
        _READ_ONLY,
    ),
    (
        ("SQLITE_NOTADB",),
        "is not a SQLite database; choose another file with --storage sqlite:///FILE",
    ),
    (
        ("SQLITE_CORRUPT",),
        "is damaged; restore a copy of it, or move it away and run `tuner search` again",
    ),
    (
        ("SQLITE_FULL",),
        "cannot grow because the disk is full; free some space, then run the same command again to resume",
    ),
    (
        ("SQLITE_IOERR",),
        "cannot be read or written (the disk may be full or failing); free some space or choose another disk with "
        "--storage sqlite:///FILE",
    ),
)


def translate(problem: SQLAlchemyError, file: Path) -> StoreError:
    """The error to show for what SQLAlchemy raised."""
    original = problem.orig if isinstance(problem, DBAPIError | StatementError) else None
    code = getattr(original, "sqlite_errorname", "")
    if code.startswith("SQLITE_CANTOPEN"):
        return not_opened(file)
    for beginnings, sentence in _SENTENCES:
        if code.startswith(beginnings):
            return StoreError(f"{file} {sentence}")
    if "no such table" in str(original) or "no such column" in str(original):
        return StoreError(
            f"{file} lacks a part of its tables ({original}); restore a copy of it, or move it away and run "
            "`tuner search` again"
        )
    return StoreError(f"{file}: the database refused ({original or problem}); please report this")


def missing(file: Path) -> StoreError:
    """There is no such file, and looking at it must not make one."""
    return StoreError(
        f"{file} does not exist; run `tuner search` to make it, or name another file with --storage sqlite:///FILE"
    )


def not_opened(file: Path) -> StoreError:
    """The file cannot be opened, or not be made."""
    return StoreError(f"{file} cannot be opened{_why_not_opened(file)}")


def read_only(file: Path) -> StoreError:
    """The file may be read but not changed."""
    return StoreError(f"{file} {_READ_ONLY}")


def _why_not_opened(file: Path) -> str:
    folder = file.parent
    if file.is_dir():
        return ": it is a folder; name a file in it with --storage sqlite:///FILE"
    if not folder.is_dir():
        return f": there is no folder {folder}; make it first, or choose another file with --storage sqlite:///FILE"
    return f"; make {file.name} and its folder {folder} readable and writable, or choose another file with --storage sqlite:///FILE"
