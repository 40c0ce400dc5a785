"""Process: the handle on one measuring process; a question is answered, or it is said how the process was lost."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner import errors
from tuner.measure.failures import says_out_of_memory
from tuner.measure.sending import CannotSend, child_environment
from tuner.measurement import CRASH, DEADLINE, OUT_OF_MEMORY
from tuner.wire import Channel

COMMAND = (sys.executable, "-P", "-m", "tuner.measure.child")
_KEPT = 4000
_LAST_WORDS_S = 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """The process ended, or was ended, before it answered."""

    cause: str
    message: str
    index: int | None  # which of several candidates it was at, where that is known


class MeasuringProcess:
    """One child; it ends with this object, and with this process in whatever way that ends.

    Args:
        command: the child's program; it is given the two file descriptors and the number of this process.
    """

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        reading, child_writing = os.pipe()
        child_reading, writing = os.pipe()
        self._channel = Channel(reading, writing)
        try:
            self._popen = subprocess.Popen(
                [*command, str(child_reading), str(child_writing), str(os.getpid())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # it makes its own stdout a copy of stderr
                stderr=subprocess.PIPE,
                pass_fds=(child_reading, child_writing),
                env=child_environment(),
                start_new_session=True,  # Ctrl-C is for this process, which then decides
            )
        except BaseException:
            self._channel.close()
            raise
        finally:
            os.close(child_reading)
            os.close(child_writing)
        self._said = bytearray()
        self._listener = threading.Thread(target=self._listen, name="tuner-child-stderr", daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._popen.pid

    def ask(self, question: Mapping[str, Any], blob: bytes | None = None, within_s: float | None = None) -> Any:
        """The answer to a question, or a Lost.

        Args:
            question: a message.
            blob: a frame that follows it.
            within_s: seconds for what the child sets no deadline for itself; by default it may take forever.

        Raises:
            TunerError: the child found a mistake of the user, and raised just this.
            CannotSend: it could not load the task.
            RuntimeError: it has a bug.
        """
        try:
            self._channel.send(question)
            if blob is not None:
                self._channel.send_bytes(blob)
        except BrokenPipeError:
            return self._lost({"name": "waiting"})
        return self._await_answer(within_s)

    def close(self) -> None:
        """Ends the child at once."""
        if self._popen.returncode is None:
            self._popen.kill()
            self._popen.wait()
        self._listener.join(_LAST_WORDS_S)
        if self._channel is not None:
            self._channel.close()
            self._channel = None  # type: ignore[assignment]  # closed for good

    def _await_answer(self, within_s: float | None) -> Any:
        phase: dict[str, Any] = {"name": "starting", "seconds": within_s}
        latest = None if within_s is None else time.monotonic() + within_s
        ends = latest
        while True:
            try:
                message = self._channel.receive(None if ends is None else max(0.0, ends - time.monotonic()))
            except TimeoutError:
                return self._late(phase)
            except (EOFError, ConnectionError):
                return self._lost(phase)
            if message["event"] == "phase":
                phase = message if message["seconds"] is not None else message | {"seconds": within_s}
                ends = latest if message["seconds"] is None else time.monotonic() + message["seconds"]
            elif message["event"] == "error":
                raise _error(message)
            else:
                return message["value"]

    def _late(self, phase: Mapping[str, Any]) -> Lost:
        message = f"{phase['name']} was not done after {phase['seconds']:.4g} s, and its process was ended"
        return Lost(cause=DEADLINE, message=message, index=phase.get("index"))

    def _lost(self, phase: Mapping[str, Any]) -> Lost:
        try:
            self._popen.wait(_LAST_WORDS_S)
        except subprocess.TimeoutExpired:  # it closed its pipe, and lives
            self._popen.kill()
            self._popen.wait()
        self._listener.join(_LAST_WORDS_S)
        said = self._said.decode(errors="replace")
        out_of_memory = says_out_of_memory(said)
        message = f"its process {_ending(self._popen.returncode)} while {phase['name']}{_last_line(said)}"
        return Lost(cause=OUT_OF_MEMORY if out_of_memory else CRASH, message=message, index=phase.get("index"))

    def _listen(self) -> None:
        """Hands on what the child prints, and keeps the end of it."""
        stream = self._popen.stderr
        if stream is None:
            return
        with stream:
            while data := os.read(stream.fileno(), 2**16):
                self._said = (self._said + data)[-_KEPT:]
                with contextlib.suppress(
                    AttributeError, OSError, ValueError
                ):  # there may be no stderr, or a closed one
                    sys.stderr.write(data.decode(errors="replace"))


def _ending(code: int) -> str:
    """How a process ended, from its return code."""
    if code >= 0:
        return f"ended itself with status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = ", as a system short of memory does," if -code == signal.SIGKILL else ""
    return f"was ended by {name}{hint}"


def _last_line(said: str) -> str:
    """The last thing the child said that tells something; stack traces of native code do not."""
    lines = [line.strip() for line in said.splitlines()]
    telling = [line for line in lines if line and not line.startswith(("@", "File ", "***", "#", "Extension modules"))]
    return f"; its last words: {telling[-1][:200]}" if telling else ""


def _error(message: Mapping[str, Any]) -> Exception:
    """The error that the child raised, by its name; anything unknown is a bug of ours."""
    if message["type"] == CannotSend.__name__:
        return CannotSend(message["message"])
    kind = getattr(errors, message["type"], None)
    if isinstance(kind, type) and issubclass(kind, errors.TunerError):
        return kind(message["message"])
    return RuntimeError(f"the measuring process failed: {message['message']}\n{message.get('trace', '')}")
