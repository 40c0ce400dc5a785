"""The numbers in the documents, each printed by one command: `python -m benchmarks`, or one of them by its name.

Every ratio is to the user's own `jax.jit`, taken in alternation with it in one run: the timing and the intervals are those
of `tuner.measure`. Milliseconds are for orientation; on a shared machine they change by the hour.
"""
