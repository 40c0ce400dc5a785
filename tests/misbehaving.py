"""Tasks whose hand-made casts misbehave: the baseline and policies are traced first, and a cast carries narrow weights."""

import ctypes
import os
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np

from tuner.task import Task

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(128, 8)).astype(np.float32)
PARAMS = {"w": RNG.normal(size=(8, 4)).astype(np.float32)}
LABELS = (INPUTS @ PARAMS["w"]).argmax(1).astype(np.int32)


def _callback(outputs, function):
    return jax.pure_callback(function, jax.ShapeDtypeStruct(outputs.shape, outputs.dtype), outputs)


def abort(outputs):
    """At trace time, as a compiler that fails a check does."""
    os.abort()


def segfault(outputs):
    return _callback(outputs, lambda _: ctypes.string_at(0))


def illegal(outputs):
    return _callback(outputs, lambda _: os.kill(os.getpid(), signal.SIGILL))


def killed(outputs):
    return _callback(outputs, lambda _: os.kill(os.getpid(), signal.SIGKILL))


def leaves(outputs):
    return _callback(outputs, lambda _: os._exit(3))


def raises(outputs):
    def fail(_):
        raise RuntimeError("the device fell off")

    return _callback(outputs, fail)


def does_not_compile(outputs):
    raise TypeError("lax.dot requires arguments of equal dtype")


def not_a_number(outputs):
    return outputs * jnp.nan


def hangs(outputs):
    def wait(values):
        time.sleep(600)
        return values

    return _callback(outputs, wait)


def hangs_while_compiling(outputs):
    time.sleep(600)
    return outputs


def too_large_on_the_host(outputs):
    return _callback(outputs, lambda values: np.ones(2**29)[: values.size].reshape(values.shape))


def fine(outputs):
    return outputs


def make_task(bf16=fine, f16=fine, **settings) -> Task:
    ways = {"bfloat16": bf16, "float16": f16}

    def apply(params, x):
        return ways.get(str(params["w"].dtype), fine)(x @ params["w"])

    return Task(name="misbehaving", apply=apply, params=PARAMS, inputs=INPUTS, labels=LABELS, batch_size=32, **settings)


def task() -> Task:
    return make_task(bf16=abort)
