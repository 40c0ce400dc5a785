"""A probing process without JAX: `python -m tests.fake_probe_child CRASHING READ WRITE PARENT`.

It ends itself at every precision that is named in CRASHING, with ":time" behind it only when it is timed.
"""

import contextlib
import os
import sys

from tuner.diagnosis import Attempt, Speed
from tuner.wire import Channel, encode


def main(crashing: list[str], channel: Channel) -> None:
    while True:
        question = channel.receive()
        if question["ask"] == "start":
            value = {"unlimited": "nobody limits a fake"}
        else:
            name = question["precision"]
            if name in crashing or (question["ask"] == "time" and f"{name}:time" in crashing):
                os.abort()
            speed = Speed(ratio=0.5, low=0.4, high=0.6, kernel="plain", effective="unknown", milliseconds=1.0)
            value = encode(Attempt(effective="unknown") if question["ask"] == "try" else speed)
        channel.send({"event": "answer", "value": value})


if __name__ == "__main__":
    with contextlib.suppress(EOFError, BrokenPipeError):
        main(sys.argv[1].split(","), Channel(int(sys.argv[2]), int(sys.argv[3])))
