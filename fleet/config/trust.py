"""What a repository's fleet.toml may not set: it comes from whoever wrote the repository, not from who runs the fleet.

The box, the keys, the money and the places outside the repository belong to the operator. Looks only at values.
"""

import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from fleet.layers import Key, Layer, Problem, shown_value

_INSTEAD = "put it into your own configuration file, a file named by --config, or a flag"
_YOURS: Mapping[Key, str] = {
    ("box", "sandbox"): "chooses what protects your machine",
    ("box", "syscall_filter"): "chooses what protects your machine",
    ("box", "memory_mb"): "decides how much of your machine workers take",
    ("box", "disk_mb"): "decides how much of your machine workers take",
    ("models", "api_key_env"): "chooses which of your secrets is sent",
    ("models", "prices"): "decides what your budget counts",
    ("metrics", "listen"): "decides who can look at your fleet",
    ("metrics", "hosts"): "decides who can look at your fleet",
    ("review",): "decides what begins without your word",
    ("state", "dir"): "chooses where on your machine files are written",
    ("state", "max_gb"): "decides how much of your machine the fleet takes",
}
_WORKERS: Mapping[str, str] = {
    "command": "chooses a program that a worker runs with what you gave it",
    "prompt": "speaks to a worker in your name",
    "hosts": "decides whom a worker may ask",
    "environment": "sets what a worker's program is told",
    "pass_environment": "chooses which of your secrets a worker gets",
    "read_only": "shows a worker files of your machine",
    "path": "chooses the programs that a worker runs",
}
"""Keys of `[workers.NAME]`: what one of them gives, another could carry off, so they come from one hand."""
_WAITS = "lets a plan begin that you want to look at first, which a repository may not"
_PATHS = (("box", "read_only"), ("box", "path"))
_BUDGETS = tuple(("run", f"budget_{unit}") for unit in ("dollars", "minutes", "tokens", "attempts"))


def trust_problems(layer: Layer, repository: Path, below: Mapping[Key, object]) -> Iterator[Problem]:
    """What a repository's layer sets that is not its to set. `below` is what holds without it."""
    for key, value in layer.values.items():
        if problem := _problem(key, value, repository, below):
            yield layer.problem(key, f"{problem}; {_INSTEAD}")


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine and nowhere else."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _problem(key: Key, value: object, repository: Path, below: Mapping[Key, object]) -> str | None:
    for length in range(1, len(key) + 1):
        if reason := _YOURS.get(key[:length]):
            return f"{reason}, which a repository may not"
    if key[0] == "workers" and len(key) > 2:  # noqa: PLR2004 - workers.NAME.key
        if reason := _WORKERS.get(key[2]):
            return f"{reason}, which a repository may not"
        if key[2] in {"kind", "tools"} and any((*key[:2], given) in below for given in (*_WORKERS, "network")):
            return "makes something else of a worker that you gave more than others, which a repository may not"
    if key[0] in {"box", "workers"} and key[-1] == "network" and value is True:
        return "gives workers the network, which a repository may not"
    if key == ("models", "base_url") and not is_loopback(str(value)):
        return f"sends your key and code to {shown_value(value)}; a repository may only name an address of this machine"
    if key == ("run", "review"):
        return _WAITS if value is False and below.get(key) is True else None
    if key in _BUDGETS:
        return _raised(value, below.get(key))
    if key in _PATHS and isinstance(value, list):
        outside = next((path for path in value if not _is_inside(str(path), repository)), None)
        if outside is not None:
            return (
                f"shows workers {shown_value(outside)}; a repository may only name what is below {{repo}}, without .git"
            )
    return None


def _raised(value: object, yours: object) -> str | None:
    if isinstance(yours, int | float) and isinstance(value, int | float) and value > yours:
        return f"raises your own limit of {yours:g} to {value:g}, which a repository may not"
    return None


def _is_inside(path: str, repository: Path) -> bool:
    """Whether a path stays strictly below the repository and out of its `.git`, links followed."""
    if not path.startswith("{repo}/"):
        return False
    root = os.path.realpath(repository)
    real = os.path.realpath(os.path.join(root, path.removeprefix("{repo}/")))  # noqa: PTH118 - realpath decides, as text
    if os.path.commonpath((root, real)) != root or real == root:
        return False
    return not any(part.lower() == ".git" for part in Path(real).relative_to(root).parts)
