"""The machine that the numbers belong to: what stands above every table."""

import os
import re
from datetime import UTC, datetime
from pathlib import Path

import jax

from tuner.measure import device_fingerprint

# What makes a narrow format fast on an x86 CPU; that one is missing says as much as that it is there.
DECISIVE = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8")
# Fused multiply-add units of a core in today's x86 server CPUs.
_FMA_UNITS = 2


def header() -> str:
    """CPU and its relevant features, versions, threads, date."""
    device = device_fingerprint()
    lines = [f"- {'CPU' if device['platform'] == 'cpu' else 'device'}: {device['kind']}"]
    absent = [name for name in DECISIVE if name not in cpu_features()]
    if device["platform"] == "cpu" and cpu_features() and absent:
        lines.append(f"- without: {' '.join(absent)}")
    lines += [
        f"- jax {jax.__version__}, jaxlib {device['jaxlib']}, {device['threads']} threads, {_load()}",
        f"- {datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
    ]
    return "\n".join(lines)


def cpu_features() -> frozenset[str]:
    """The instruction sets of an x86 CPU, as Linux names them; empty where that is unknown."""
    return frozenset(_cpuinfo("flags").split())


def peak_gflops_per_core() -> tuple[float, str] | None:
    """(float32 peak of one core at its nominal clock, how that is computed), or None where it cannot be derived.

    A core that runs faster than its nominal clock may exceed it.
    """
    megahertz = re.match(r"[\d.]+", _cpuinfo("cpu MHz"))
    features = cpu_features()
    if megahertz is None or "fma" not in features:
        return None
    lanes = 16 if "avx512f" in features else 8
    gigahertz = float(megahertz[0]) / 1000
    peak = gigahertz * lanes * _FMA_UNITS * 2
    return peak, f"{gigahertz:.2f} GHz x {lanes} lanes x {_FMA_UNITS} FMA units x 2 operations"


def _cpuinfo(key: str) -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(rf"^{re.escape(key)}\s*:\s*(.*)$", text, flags=re.MULTILINE)
    return "" if found is None else found[1]


def _load() -> str:
    """How busy the machine was: what is waited for is not computed with."""
    return f"load {os.getloadavg()[0]:.1f}"
