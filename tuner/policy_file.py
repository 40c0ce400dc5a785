"""Policy files: what a user exports, keeps under version control and applies elsewhere. Data only."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from tuner.errors import PolicyError
from tuner.files import write_atomically
from tuner.policy import Assignment, Policy
from tuner.policy_json import policy_from_json, policy_to_json

# What makes two devices the same kind; other facts of a fingerprint (jaxlib, threads, flags) only break ties.
_DEVICE_KIND = ("platform", "kind")
_LINE = 110


def save_policy(policy: Policy, path: str | Path, force: bool = False) -> Path:
    """Writes the policy file, one line per layer in model order; returns its path.

    Raises:
        PolicyError: the file exists and `force` is false, or it cannot be written; nothing is left half-written.
    """
    return write_atomically(path, policy_to_text(policy), force=force, error=PolicyError)


def load_policy(paths: str | Path | Sequence[str | Path], *, device: Mapping[str, str] | str | None = None) -> Policy:
    """The policy in a file, or of several files the one that was made for this device.

    Args:
        paths: one file, read whatever device it was made for unless `device` is given; or several files.
        device: a fingerprint as `tuner.measure.device_fingerprint` gives it, or a platform or device kind; by
            default and for several files the device that JAX uses now.

    Raises:
        PolicyError: a file cannot be read, or none was made for the device.
    """
    if isinstance(paths, str | Path):
        policies = {str(paths): _read(Path(paths))}
        if device is None:
            return next(iter(policies.values()))
    else:
        policies = {str(path): _read(Path(path)) for path in paths}
    if not policies:
        raise PolicyError("no policy files were given; name at least one")
    return _for_device(policies, _this_device() if device is None else device)


def policy_to_text(policy: Policy) -> str:
    """The policy as a policy file's text."""
    document = policy_to_json(policy)
    fields = []
    for name, value in document.items():
        if name == "layers":
            lines = ",\n".join(f"    {_one_line(layer)}" for layer in value)
            text = f"[\n{lines}\n  ]" if value else "[]"
        else:
            text = _lay_out(value, indent=2)
        fields.append(f'  "{name}": {text}')
    return "{\n" + ",\n".join(fields) + "\n}\n"


def policy_from_text(text: str, where: str) -> Policy:
    """The policy in a policy file's text.

    Args:
        text: the JSON.
        where: the file, for messages.

    Raises:
        PolicyError: the text is cut off, no JSON, or no policy that this version reads.
    """
    if not text.strip():
        raise PolicyError(f"{where} is empty; export it again with `tuner export`")
    try:
        document = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise PolicyError(f"{where} is nested too deeply for a policy; export it again with `tuner export`") from None
    except ValueError as problem:  # JSONDecodeError is one
        raise PolicyError(
            f"{where} is cut off or not JSON ({problem}); export it again with `tuner export`"
        ) from problem
    return policy_from_json(document, where)


def policy_schema() -> dict[str, Any]:
    """The JSON Schema of policy files, for other tools; loading checks more than it can say."""
    text = resources.files("tuner").joinpath("policy.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerDifference:
    """One layer in which two policies differ; None where a policy does not have it."""

    name: str
    before: Assignment | None
    after: Assignment | None
    # Same precision and kernel, other calibrated numbers.
    only_scales: bool = False


def diff_policies(before: Policy, after: Policy) -> list[LayerDifference]:
    """The layers in which two policies differ, in the order of the first, then what only the second has."""
    olds, news = dict(before.assignments), dict(after.assignments)
    old_scales, new_scales = dict(before.scales), dict(after.scales)
    differences = []
    for name in (*olds, *(name for name in news if name not in olds)):
        old, new = olds.get(name), news.get(name)
        if old != new or old_scales.get(name) != new_scales.get(name):
            differences.append(LayerDifference(name=name, before=old, after=new, only_scales=old == new))
    return differences


def device_text(policy: Policy) -> str:
    """The device a policy was made for, as people call it; "no recorded device" where it does not say."""
    device = _device_of(policy)
    return " ".join(device[key] for key in _DEVICE_KIND if key in device) or "no recorded device"


def _read(path: Path) -> Policy:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise PolicyError(f"{path} does not exist; write one with `tuner export STUDY -o {path}`") from None
    except UnicodeDecodeError:
        raise PolicyError(f"{path} is not a text file; give a policy written by `tuner export`") from None
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise PolicyError(f"{path} cannot be read: {reason}; give a policy file that you may read") from problem
    return policy_from_text(text, str(path))


def _for_device(policies: Mapping[str, Policy], device: Mapping[str, str] | str) -> Policy:
    """The policy made for this kind of device; of several the one whose circumstances agree most."""
    matching = [policy for policy in policies.values() if _made_for(policy, device)]
    if not matching:
        wanted = device if isinstance(device, str) else " ".join(device.get(key, "?") for key in _DEVICE_KIND)
        made = ", ".join(f"{path} is for {device_text(policy)}" for path, policy in policies.items())
        raise PolicyError(
            f"no policy for this device ({wanted}): {made}; search on this device, or load one of them by its path alone"
        )
    agreement = {} if isinstance(device, str) else device.items()
    return max(matching, key=lambda policy: len(agreement & _device_of(policy).items()) if agreement else 0)


def _made_for(policy: Policy, device: Mapping[str, str] | str) -> bool:
    made = _device_of(policy)
    if isinstance(device, str):
        return device in (device_text(policy), *(made.get(key) for key in _DEVICE_KIND))
    return bool(made) and all(made.get(key) == device.get(key) for key in _DEVICE_KIND)


def _device_of(policy: Policy) -> dict[str, str]:
    device = (policy.provenance or {}).get("device")
    return {key: str(value) for key, value in device.items()} if isinstance(device, Mapping) else {}


def _this_device() -> Mapping[str, str]:
    from tuner.measure import device_fingerprint

    return device_fingerprint()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, whose second field of one name would otherwise silently win."""
    read: dict[str, Any] = {}
    for name, value in pairs:
        if name in read:
            raise ValueError(f"field {name!r} twice in one object")
        read[name] = value
    return read


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _lay_out(value: Any, indent: int) -> str:
    """One line where it fits, else one line per item, again laid out."""
    line = _one_line(value)
    if len(line) + indent <= _LINE or not isinstance(value, Mapping):
        return line
    inside = " " * (indent + 2)
    items = ",\n".join(f"{inside}{_one_line(key)}: {_lay_out(item, indent + 2)}" for key, item in value.items())
    return "{\n" + items + "\n" + " " * indent + "}"
