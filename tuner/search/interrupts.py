"""Ctrl-C during a search: never in the middle of a transaction, at once while a candidate is measured."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Turns SIGINT into KeyboardInterrupt where that is safe: inside `allowed()`, or at `check()`.

    Outside the main thread, where Python lets nobody handle signals, it changes nothing. A second Ctrl-C always
    interrupts at once.
    """

    def __init__(self) -> None:
        self._pending = False
        self._allowed = False
        self._before: Any = None
        self._installed = False

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._handle)
            self._installed = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGINT, self._before)
            self._installed = False

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """A stretch of work that may be cut off anywhere."""
        self.check()
        self._allowed = True
        try:
            yield
        except KeyboardInterrupt:
            self._pending = False
            raise
        finally:
            self._allowed = False
        self.check()  # Python drops what is raised in a destructor or a callback of the garbage collector

    def check(self) -> None:
        """Raise KeyboardInterrupt when Ctrl-C was pressed since the last safe place."""
        if self._pending:
            self._pending = False
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        pressed_before, self._pending = self._pending, True
        if self._allowed or pressed_before:
            raise KeyboardInterrupt
