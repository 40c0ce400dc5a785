"""A measuring process that answers at once: what is left is the cost of asking. `python -m benchmarks.idle_child READ WRITE PARENT`."""

import contextlib
import sys
from typing import Any

from tuner.measurement import Latency, Measurement, Memory, Quality
from tuner.wire import Channel, encode, read_policy


def answer(question: dict[str, Any]) -> Any:
    """A measurement of the size of a real one, with a line for every layer of the policy."""
    policy = read_policy(question["policy"]) if question["ask"] == "measure" else None
    measured = Measurement(
        latency=Latency(ratio=1.0, low=0.99, high=1.01, milliseconds=1.0, baseline_spread=0.05, pairs=20),
        quality=Quality(
            value=0.9, drop=0.0, drop_low=0.0, drop_high=0.0, examples=1000, method="mcnemar", fidelity=0.0
        ),
        memory=Memory(total_bytes=1000, weight_bytes=500),
        effective={} if policy is None else dict.fromkeys(policy.names, "as requested"),
    )
    return {"baseline": encode(measured), "unlimited": None} if question["ask"] == "start" else encode(measured)


def main(channel: Channel) -> None:
    """Answers until the pipe closes."""
    while True:
        question = channel.receive()
        if question.get("blob"):
            channel.receive_bytes()
        channel.send({"event": "phase", "name": "compiling", "seconds": 60.0, "index": None})
        channel.send({"event": "answer", "value": answer(question)})


if __name__ == "__main__":
    with contextlib.suppress(EOFError, BrokenPipeError):
        main(Channel(int(sys.argv[1]), int(sys.argv[2])))
