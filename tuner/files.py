"""The one place that writes files for users: whole or not at all, and never over another one unasked."""

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path

from tuner.errors import InputError, TunerError


def write_atomically(
    path: str | Path, content: str | bytes, *, force: bool = False, error: type[TunerError] = InputError
) -> Path:
    """Writes the file so that no reader, crash or full disk ever meets half of it; returns where it went.

    Args:
        path: the file; a link is followed.
        content: text is written as UTF-8 with the line ends it has.
        force: whether an existing file may be replaced.
        error: what to raise, for callers whose users expect a certain kind.

    Raises:
        TunerError: the file exists and `force` is false, or it cannot be written; nothing is left behind.
    """
    target = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        if target.exists() and not target.is_file():
            raise error(f"{target} is a {_kind(target)}, not a file; choose another path")
        if target.exists() and not force:
            raise error(_taken(target))
        _write(target.resolve(), data, force)
    except FileExistsError:  # made by someone else in between
        raise error(_taken(target)) from None
    except OSError as problem:
        raise error(
            f"{target} cannot be written: {_reason(problem)}; nothing was left there; {_remedy(target, problem)}"
        ) from problem
    return target


def _write(target: Path, data: bytes, force: bool) -> None:
    """Fills a file next to the target, then gives it the target's name in one step."""
    temporary = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.tmp")
    # os.open rather than tempfile: the result should have the permissions of any file that the user makes.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if force:
            with suppress(FileNotFoundError):
                temporary.chmod(target.stat().st_mode & 0o777)
            temporary.replace(target)
        else:
            _claim_name(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def _claim_name(temporary: Path, target: Path) -> None:
    """Names the finished file, failing when the name was taken meanwhile.

    Raises:
        FileExistsError: it was.
    """
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if target.exists():
            raise FileExistsError(target) from None
        temporary.replace(target)


def _taken(target: Path) -> str:
    return f"{target} exists and is not overwritten; choose another path, or ask for it with --force (force=True)"


def _kind(target: Path) -> str:
    return "folder" if target.is_dir() else "device or pipe"


def _reason(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()


def _remedy(target: Path, problem: OSError) -> str:
    folder = target.parent
    if problem.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"choose a folder that you may write to instead of {folder}"
    with suppress(OSError):  # a folder that may not even be looked at
        if not folder.exists():
            return f"make the folder {folder} first"
        if not folder.is_dir():
            return f"{folder} is not a folder, so choose another path"
    return "free space there or choose another path"
