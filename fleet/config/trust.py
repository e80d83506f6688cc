"""What a repository's fleet.toml may not set: its author is not the person who runs the fleet.

The sandbox, keys, money and places outside the repository belong to that person. Only values are checked here.
"""

import ipaddress
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from fleet.config.layer import Key, Layer, Problem, shown_value

_INSTEAD = "put it into your own configuration file, a file named by --config, or a flag"
_REFUSED: Mapping[Key, str] = {
    ("box", "sandbox"): "chooses what protects your machine",
    ("box", "syscall_filter"): "chooses what protects your machine",
    ("box", "memory_mb"): "decides how much of your machine workers may use",
    ("box", "disk_mb"): "decides how much of your machine workers may use",
    ("box", "tool_chains"): "shows workers folders of your home",
    ("box", "labels"): "decides what is sent to your machine",
    ("models", "api_key_env"): "chooses which of your secrets is sent",
    ("models", "service"): "chooses which of your credentials are used",
    ("models", "region"): "chooses where your code is sent",
    ("models", "project"): "chooses which of your projects is charged",
    ("models", "auth"): "chooses how your key is sent",
    ("models", "headers"): "chooses which of your secrets is sent",
    ("models", "prices"): "decides how your budget is counted",
    ("models", "without"): "decides what your calls cost",
    ("models", "model_without"): "decides what your calls cost",
    ("git", "sign"): "signs in your name",
    ("git", "signing_key"): "chooses one of your keys",
    ("git", "signing_program"): "chooses a program that runs as you",
    ("git", "sign_off"): "signs off in your name",
    ("git", "taker"): "says who you are",
    ("mcp",): "runs a program as you, whose tools workers get",
    ("nodes",): "sends your code to other machines, by a program that runs as you",
    ("metrics", "listen"): "decides who can observe your fleet",
    ("traces", "otlp"): "decides who can observe your fleet",
    ("metrics", "hosts"): "decides who can observe your fleet",
    ("notify",): "decides who is told of your runs, and how",
    ("tend",): "decides whose words your fleet follows on pull requests, and what that costs",
    ("run", "not_between"): "decides when your machine works",
    ("review",): "decides what may start without your approval",
    ("reviewer",): "decides how changes are reviewed",
    ("state", "dir"): "chooses where on your machine files are written",
    ("state", "max_gb"): "decides how much of your machine the fleet may use",
}
_REFUSED_OF_WORKERS: Mapping[str, str] = {
    "command": "chooses a program that a worker runs with what you gave it",
    "prompt": "instructs a worker in your name",
    "mcp": "gives a worker tools outside of its box",
    "hosts": "decides which hosts a worker may reach",
    "environment": "sets variables for a worker's program",
    "pass_environment": "chooses which of your secrets a worker gets",
    "read_only": "shows a worker files of your machine",
    "path": "chooses the programs that a worker runs",
}
"""Keys of `[workers.NAME]`: what one of them gives, another could leak, so all of them come from one person."""
_PRIVILEGES = frozenset({*_REFUSED_OF_WORKERS, "network"})
_BUDGETS = tuple(("run", f"budget_{unit}") for unit in ("dollars", "minutes", "tokens", "attempts"))


def trust_problems(layer: Layer, repository: Path, below: Mapping[Key, object]) -> Iterator[Problem]:
    """What a repository's layer sets and may not set. `below` holds the values of the weaker layers."""
    for key, value in layer.values.items():
        if reason := _reason(key, value, repository, below):
            yield layer.problem(key, f"{reason}; {_INSTEAD}")


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine and nowhere else."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _reason(key: Key, value: object, repository: Path, below: Mapping[Key, object]) -> str | None:
    """Why a repository may not set a key to a value; None if it may."""
    for length in range(1, len(key) + 1):
        if reason := _REFUSED.get(key[:length]):
            return f"{reason}, which a repository may not"
    if key[0] == "workers" and len(key) > 2:  # noqa: PLR2004 - workers.NAME.key
        if reason := _REFUSED_OF_WORKERS.get(key[2]):
            return f"{reason}, which a repository may not"
        if key[2] in {"kind", "tools"} and _has_privileges(key[:2], below):
            return "changes what a worker does that you gave more access than others, which a repository may not"
    if key[0] in {"box", "workers"} and key[-1] == "network" and value is True:
        return "gives workers the network, which a repository may not"
    if key == ("worktrees", "setup_network") and value != "none":
        return "gives the set-up command, which it chooses, the network, which a repository may not"
    if key == ("models", "base_url") and not is_loopback(str(value)):
        return f"sends your key and code to {shown_value(value)}; a repository may only name an address of this machine"
    if key == ("run", "review") and value is False and below.get(key) is True:
        return "starts a plan that you want to review first, which a repository may not"
    if key in _BUDGETS:
        return _raised_limit(value, below.get(key))
    if key in {("box", "read_only"), ("box", "path")} and isinstance(value, list):
        return _path_outside(value, repository)
    return None


def _has_privileges(worker: Key, below: Mapping[Key, object]) -> bool:
    """Whether you gave this worker anything that a repository may not give."""
    return any(
        key[:2] == worker and len(key) > len(worker) and key[2] in _PRIVILEGES and value for key, value in below.items()
    )


def _raised_limit(value: object, yours: object) -> str | None:
    if isinstance(yours, int | float) and isinstance(value, int | float) and value > yours:
        return f"raises your own limit of {yours:g} to {value:g}, which a repository may not"
    return None


def _path_outside(paths: list[object], repository: Path) -> str | None:
    outside = next((path for path in paths if not _is_inside(str(path), repository)), None)
    if outside is None:
        return None
    return f"shows workers {shown_value(outside)}; a repository may only name paths below {{repo}}, outside of .git"


def _is_inside(path: str, repository: Path) -> bool:
    """Whether a path leads strictly below the repository and not into its `.git`, links followed."""
    if not path.startswith("{repo}/"):
        return False
    root = os.path.realpath(repository)
    real = os.path.realpath(os.path.join(root, path.removeprefix("{repo}/")))  # noqa: PTH118 - realpath decides, as text
    if os.path.commonpath((root, real)) != root or real == root:
        return False
    return not any(part.lower() == ".git" for part in Path(real).relative_to(root).parts)
