"""All benchmarks, one after the other: `python -m benchmarks [--smoke]`."""

from benchmarks import capture, fashion_mlp, isolation, matmul_limits, noise, overhead
from benchmarks.command import run

if __name__ == "__main__":
    modules = (fashion_mlp, matmul_limits, overhead, capture, isolation, noise)
    raise SystemExit(run({module.TITLE: module.report for module in modules}))
