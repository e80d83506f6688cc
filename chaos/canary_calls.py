"""Calls of each command by `python -m chaos.canaries`, so that it reads the repository in each of its ways.

`{model}` is the address of a simulated model.
"""

import shlex
from collections.abc import Iterator, Mapping

from fleet.cli.verb_table import VERBS

WITHOUT_MODEL = "--base-url http://127.0.0.1:9"
CALLS: Mapping[str, tuple[str, ...]] = {
    "doctor": ("doctor", "doctor --try"),
    "init": ("init --dry-run", "init --yes", "init --no-try --force"),
    "try": ("try", "try 'test -f a.flt'"),
    "plan": (f"plan Write {WITHOUT_MODEL}", "plan Write -o planned.toml --base-url {model}"),
    "run": (
        f"run --plan plan.toml --yes --name r {WITHOUT_MODEL}",
        f"run --plan other.toml --yes --name s {WITHOUT_MODEL}",
        f"run --plan conflict.toml --yes --name c {WITHOUT_MODEL}",
        "run Write --yes --name m --base-url {model}",
        f"run --plan plan.toml --name w --review human --detach {WITHOUT_MODEL}",
        f"run --plan plan.toml --name x --review human --detach {WITHOUT_MODEL}",
        f"run --plan broken.toml --yes --name q {WITHOUT_MODEL}",
    ),
    "rehearse": ("rehearse --last 2 --branch --name old",),
    "resume": ("resume q", "resume w --detach"),
    "limits": ("limits r", "limits w --workers 2 --yes"),
    "pause": ("pause w --yes",),
    "cancel": ("cancel x --yes",),
    "watch": ("watch r --plain", "watch r --json"),
    "runs": ("runs", "runs --all --json"),
    "status": ("status", "status m --json"),
    "show": ("show one --run r", "show r", "show --run q"),
    "logs": ("logs one --run r", "logs gate --run r"),
    "diff": ("diff one --run r",),
    "approve": ("approve w --yes",),
    "reject": ("reject x --yes -m 'not today'",),
    "answer": ("answer q1 'drop it' --run q --yes",),
    "retry": ("retry one --run q --yes",),
    "merge": (
        "merge r --into taken --yes",
        "merge s --into taken --yes",
        "merge c --into taken --yes",
        "merge s --yes",
        "merge m --yes",
        "merge r --yes",
    ),
    "pr": ("pr r --dry-run --yes",),
    "tend": ("tend r --once",),
    "audit": ("audit r", "audit m --json"),
    "trace": ("trace r", "trace r --json"),
    "report": ("report r", "report m -o report.html"),
    "commits": ("commits", "commits --since 1w --json"),
    "completion": ("completion bash", "completion zsh -o completion.zsh"),
    "help": ("help", "help run"),
    "metrics": ("metrics --listen 127.0.0.1:0",),
    "web": ("web --listen 127.0.0.1:0",),
    "tell": ("tell one 'be quick' --run w --yes",),
    "notify": ("notify list",),
    "acp": ("acp --list --json",),
    "mcp": ("mcp --list --json",),
    "node": ("node --stdio",),
    "nodes": ("nodes",),
    "simulate": ("simulate script.json",),
    "clean": ("clean", "clean --branches", "clean --apply --max-gb 0", "clean --apply --branches --runs --ended"),
    "plans": (
        "plans list",
        "plans check plan.toml",
        "plans show plan.toml",
        "plans graph plan.toml",
        "plans diff plan.toml conflict.toml",
        "plans save plan.toml kept",
        "plans edit plan.toml",
    ),
    "config": ("config show",),
}
"""Arguments of each command. A command that is not listed is called without arguments."""
REFUSED = frozenset({"merge r --yes", "plans edit plan.toml", "pr r --dry-run --yes", "tend r --once"})
"""Calls that are refused: git would run a filter program in the checkout; an editor needs a terminal; the repository
has no remote on a forge."""
ORDER = ("simulate", "doctor", "init", "plan", "run", "pause", "limits", "tell", "approve", "reject", "answer", "retry")
"""Commands to call first, so that the others find runs, including some that wait for a human."""
SERVING = {"metrics": "/metrics", "simulate": "/healthz", "web": ""}
"""Verbs that serve until they are stopped, each with a path that answers, unless it prints a link."""


def calls() -> Iterator[tuple[str, ...]]:
    """Every verb of the command line's own table."""
    rest = [verb for verb in VERBS if verb not in ORDER and verb != "clean"]
    for verb in (*ORDER, *rest, "clean"):
        for line in CALLS.get(verb, (verb,)):
            yield tuple(shlex.split(line))
