"""The doctor: what this device runs and how fast, found out once per device and kept with the studies."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tuner.diagnosis import PROBE_KEY, Check, Diagnosis, Probe, probe_from_json, probe_to_json
from tuner.errors import StoreError, TunerError

if TYPE_CHECKING:
    from tuner.measure.probing import Prober

Say = Callable[[str], object]

SECONDS = 25.0
_LOCK_S = 10.0


def diagnose(
    storage: str,
    *,
    again: bool = False,
    seconds: float = SECONDS,
    say: Say = lambda text: None,
    detail: Say = lambda text: None,
) -> Diagnosis:
    """The device, what it runs, and what measuring on it has to do without.

    Args:
        storage: the database that keeps the probe; it is made when it is not there.
        again: probe anew although this device was probed before.
        seconds: that timing may take; what they do not reach is timed the next time.
        say: called when probing begins.
        detail: called with each operation that is tried or timed.

    Raises:
        MeasuringStopped: no process can be started to probe in.
    """
    import tuner
    from tuner.measure import device_fingerprint, device_name
    from tuner.measure.probing import make_prober
    from tuner.measure.surroundings import check_surroundings
    from tuner.store.engine import locate

    fingerprint = device_fingerprint()
    probe, problem = _kept(storage, fingerprint, tuner.__version__)
    notes: tuple[str, ...] = ()
    prober = make_prober()
    try:
        if again or not probe.complete:
            say(f"Probing this device: {seconds:g} seconds at most, and what it takes to try everything once.")
            known = Probe(tool_version=tuner.__version__) if again else probe
            probe, notes = _probe(prober, known, seconds, detail)
            problem = problem or _keep(storage, fingerprint, probe)
        checks = check_surroundings(locate(storage)[1].absolute(), prober.unlimited)
    finally:
        prober.close()
    if problem is not None:
        checks = (*checks, Check("kept probe", False, f"the next search knows nothing of this one: {problem}"))
    return Diagnosis(name=device_name(), fingerprint=fingerprint, probe=probe, checks=checks, notes=notes)


def kept_probe(storage: str) -> Probe:
    """What is known of this device in a database; nothing where there is none, or it cannot be read."""
    import tuner
    from tuner.measure import device_fingerprint
    from tuner.store import Store

    try:
        if not Store.exists(storage):
            return Probe(tool_version=tuner.__version__)
        with Store.open(storage, create=False, read_only=True) as store:
            return probe_from_json(store.find_probe(device_fingerprint(), PROBE_KEY), tuner.__version__)
    except StoreError:
        return Probe(tool_version=tuner.__version__)


def _probe(prober: "Prober", known: Probe, seconds: float, detail: Say) -> tuple[Probe, tuple[str, ...]]:
    """What the device runs, and how fast where it is free to be timed; what is known already is not asked again."""
    from tuner.measure import device_lock
    from tuner.measure.probe import precisions_to_probe
    from tuner.measure.probing import time_all, try_all

    found = try_all(prober, known, precisions_to_probe(), detail)
    try:
        with device_lock(timeout=_LOCK_S):
            found = time_all(prober, found, seconds=seconds, say=detail)
    except TunerError as error:
        return found, (f"Nothing was timed: {error}.",)
    return found, () if found.complete else (f"Not everything was timed in {seconds:g} s; the same command goes on.",)


def _kept(storage: str, fingerprint: dict[str, str], tool_version: str) -> tuple[Probe, str | None]:
    """(what is known already, why the database cannot be used or None)."""
    from tuner.store import Store

    nothing = Probe(tool_version=tool_version)
    try:
        with Store.open(storage) as store:
            return probe_from_json(store.find_probe(fingerprint, PROBE_KEY), tool_version), None
    except StoreError as error:
        return nothing, str(error)


def _keep(storage: str, fingerprint: dict[str, str], probe: Probe) -> str | None:
    """Keeps the probe; None, or why it cannot be kept."""
    from tuner.store import Store

    try:
        with Store.open(storage) as store:
            store.save_probe(fingerprint, PROBE_KEY, probe_to_json(probe))
    except StoreError as error:
        return str(error)
    return None
