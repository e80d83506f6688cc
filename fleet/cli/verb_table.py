"""The verbs in the groups of `fleet --help`, and what each is about. Literal, so that no verb has to be imported."""

from fleet.features.table import FEATURES, Verb

KERNEL: dict[str, dict[str, Verb]] = {
    "Work": {
        "plan": Verb("begin:plan", "repository", "Let the planner write a plan; run nothing."),
        "run": Verb("begin:run", "repository", "Plan an epic and work on it until it has landed."),
        "resume": Verb("begin:resume", "run", "Resume a run that stopped.", changes=True),
        "limits": Verb("begin:limits", "run", "Show or change the limits of a run.", changes=True),
        "pause": Verb("review:pause", "run", "Start nothing new until `fleet resume`.", changes=True),
        "cancel": Verb("review:cancel", "run", "Stop a run and its agents.", changes=True),
    },
    "Look": {
        "watch": Verb("watch:watch", "run", "Watch a run, and act on it."),
        "runs": Verb("look:runs", "repository", "List the runs of a repository, the latest last."),
        "status": Verb("look:status", "run", "Show how a run is doing."),
        "show": Verb("look:show_subtask", "part", "Show a subtask, or the incidents of a run."),
        "logs": Verb("look:logs", "part", "Print the conversation of an attempt."),
        "diff": Verb("look:diff", "part", "Print what an attempt changed."),
    },
    "Decide": {
        "approve": Verb("review:approve", "run", "Approve the plan of a run, or some of its subtasks.", changes=True),
        "reject": Verb("review:reject", "run", "Reject the plan of a run, or some of its subtasks.", changes=True),
        "answer": Verb("review:answer", "part", "Answer a question that a run asks.", changes=True),
        "tell": Verb("review:tell", "part", "Tell an agent what to do, while it works.", changes=True),
        "retry": Verb("review:retry", "part", "Retry a failed subtask, with your guidance.", changes=True),
    },
    "Result": {},
    "Plans and settings": {
        "plans": Verb("plans:plans", "repository", "Show, check, compare, draw, edit and save plans."),
        "config": Verb("configure:config", "repository", "Show the configuration and where each value comes from."),
        "explain-policy": Verb("configure:explain_policy", "repository", "Show how each kind of failure is handled."),
    },
    "This machine": {
        "clean": Verb("clean:clean", "machine", "Show or free the disk space that runs use."),
        "help": Verb("about:help_", "machine", "Show the help of a verb."),
        "version": Verb("about:version", "machine", "Print the version."),
    },
    "Other programs and machines": {},
}

ORDER = (
    *("watch", "web", "runs", "status", "show", "logs", "diff"),
    *("plan", "run", "rehearse", "resume", "limits", "pause", "cancel"),
    *("merge", "tend", "pr", "report", "trace", "audit", "commits"),
    *("plans", "try", "init", "config", "explain-policy"),
    *("doctor", "clean", "completion", "help", "version"),
    *("acp", "mcp", "node", "nodes", "metrics", "notify", "simulate"),
)
"""How a group is listed where features add verbs to it; others come last."""


def _listed(title: str) -> dict[str, Verb]:
    """The verbs of a group, those of features included."""
    verbs = dict(KERNEL[title])
    for feature in FEATURES.values():
        verbs.update(feature.verbs.get(title, {}))
    return {
        name: verbs[name] for name in sorted(verbs, key=lambda each: ORDER.index(each) if each in ORDER else len(ORDER))
    }


GROUPS: dict[str, dict[str, Verb]] = {title: verbs for title in KERNEL if (verbs := _listed(title))}

VERBS: dict[str, Verb] = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}
