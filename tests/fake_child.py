"""A measuring process without JAX: numbers that follow from the policy alone, and the ways to go wrong that it is told.

`python -m tests.fake_child BEHAVIOR READ WRITE PARENT`; the behavior is JSON: name of a weight format -> how a policy
with such a weight ends, "cycle" -> how one candidate after the other ends, "attempt" -> the same for a precision that is
tried alone, "log" -> a file that gets a line per candidate begun and ended, "seconds" -> how long one takes.
"""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from tuner.diagnosis import Attempt
from tuner.measurement import COMPILE_ERROR, NON_FINITE, Confirmation, Failure, Latency, Measurement, Memory, Quality
from tuner.wire import Channel, encode, read_policy

SPEED = {"original": 1.0, "f32": 0.9, "bf16": 0.5, "i8": 0.3}
LOSS = {"original": 0.0, "f32": 0.0, "bf16": 0.001, "i8": 0.004}


def main(behavior: dict, channel: Channel) -> None:
    while True:
        question = channel.receive()
        if question.get("blob"):
            channel.receive_bytes()
        if question["ask"] == "start":
            say_last_words(behavior.get("start"))
            value = {"baseline": encode(measured(["original"])), "unlimited": behavior.get("unlimited")}
        elif question["ask"] == "measure":
            value = encode(measure(behavior, channel, read_policy(question["policy"])))
        elif question["ask"] == "measure_cast":
            channel.send({"event": "phase", "name": "compiling", "seconds": 60})
            say_last_words(behavior.get(f"astype({question['format']})"))
            value = encode(measured(["original"]))
        elif question["ask"] == "try_precision":
            what = f"trying {question['operation']} in {question['precision']}"
            channel.send({"event": "phase", "name": what, "seconds": 60})
            say_last_words(behavior.get("attempt", {}).get(question["precision"]))
            value = encode(Attempt(effective="as requested"))
        else:
            value = encode(confirm(behavior, channel, [read_policy(policy) for policy in question["policies"]]))
        channel.send({"event": "answer", "value": value})


def measure(behavior, channel, policy):
    channel.send(
        {"event": "phase", "name": "compiling", "seconds": 0.3 if "hang" in str(behavior) else 60, "index": None}
    )
    formats = [precision.weights.name for precision in policy.precisions.values()]
    write(behavior, f"begin {policy.hash}")
    time.sleep(behavior.get("seconds", 0.0))
    cycle = behavior.get("cycle", [None])
    how = cycle[(count(behavior) - 1) % len(cycle)]
    if how in (NON_FINITE, COMPILE_ERROR):
        return Failure(cause=how, message="as told")
    say_last_words(how)
    for name in formats:
        say_last_words(behavior.get(name))
    write(behavior, f"end {policy.hash}")
    return measured(formats)


def confirm(behavior, channel, policies):
    for index, policy in enumerate(policies):
        channel.send(
            {
                "event": "phase",
                "name": "compiling and scoring",
                "seconds": 0.3 if "hang" in str(behavior) else 60,
                "index": index,
            }
        )
        for precision in policy.precisions.values():
            say_last_words(behavior.get(f"confirm {precision.weights.name}"))
    channel.send({"event": "phase", "name": "timing", "seconds": 0.3 if "hang" in str(behavior) else 60, "index": None})
    if any(
        precision.weights.name == behavior.get("confirm timing")
        for p in policies
        for precision in p.precisions.values()
    ):
        os.abort()
    found = [measured([precision.weights.name for precision in p.precisions.values()]) for p in policies]
    return [Confirmation(latency=one.latency, quality=one.quality) for one in found]


def say_last_words(how: str | None) -> None:
    if how is None:
        return
    if how.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[how])
    elif how == "hang":
        time.sleep(600)
    elif how == "exit":
        sys.exit(3)
    elif how == "once":  # the first process that comes here ends, the next one does not
        marker = Path("ended once")
        if not marker.exists():
            marker.touch()
            os.abort()
    else:
        sys.stderr.write(f"{how}\n")
        sys.stderr.flush()
        os.abort()


def write(behavior: dict, line: str) -> None:
    if "log" in behavior:
        descriptor = os.open(behavior["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)


def count(behavior: dict) -> int:
    """Candidates begun so far, by all processes."""
    return Path(behavior["log"]).read_text().count("begin") if "log" in behavior else 1


def measured(formats: list[str]) -> Measurement:
    ratio = 1.0 - sum(1 - SPEED[name] for name in formats) / 10
    drop = sum(LOSS[name] for name in formats)
    return Measurement(
        latency=Latency(
            ratio=ratio, low=ratio - 0.01, high=ratio + 0.01, milliseconds=4 * ratio, baseline_spread=0.05, pairs=12
        ),
        quality=Quality(
            value=0.9 - drop,
            drop=drop,
            drop_low=drop - 0.001,
            drop_high=drop + 0.001,
            examples=1000,
            method="mcnemar",
            fidelity=0.01,
        ),
        memory=Memory(total_bytes=int(1000 * ratio), weight_bytes=int(500 * ratio)),
        effective={"layer_0": "as requested"},
    )


if __name__ == "__main__":
    with contextlib.suppress(EOFError, BrokenPipeError):
        main(json.loads(sys.argv[1]), Channel(int(sys.argv[2]), int(sys.argv[3])))
