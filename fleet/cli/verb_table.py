"""The verbs in the groups of `fleet --help`, with their summaries. Literal, so that help imports no verb."""

from fleet.features.table import FEATURES, Verb

KERNEL: dict[str, dict[str, Verb]] = {
    "Work": {
        "plan": Verb("start:plan", "repository", "Create a plan without running it."),
        "run": Verb("start:run", "repository", "Plan an epic, build it and land it."),
        "resume": Verb("start:resume", "run", "Resume a stopped run.", changes=True),
        "limits": Verb("start:limits", "run", "Show or change the limits of a run.", changes=True),
        "pause": Verb(
            "review:pause", "run", "Pause a run: let running attempts finish, start no new ones.", changes=True
        ),
        "cancel": Verb("review:cancel", "run", "Stop a run and its agents.", changes=True),
    },
    "Look": {
        "watch": Verb("watch:watch", "run", "Watch a run in the terminal UI."),
        "runs": Verb("look:runs", "repository", "List runs."),
        "status": Verb("look:status", "run", "Show the status of a run."),
        "show": Verb("look:show_subtask", "part", "Show a subtask, or a run's incidents."),
        "logs": Verb("look:logs", "part", "Print the conversation of an attempt."),
        "diff": Verb("look:diff", "part", "Print the diff of an attempt."),
    },
    "Decide": {
        "approve": Verb("review:approve", "run", "Approve a run's plan, or some of its subtasks.", changes=True),
        "reject": Verb("review:reject", "run", "Reject a run's plan, or some of its subtasks.", changes=True),
        "answer": Verb("review:answer", "part", "Answer a question from a run.", changes=True),
        "tell": Verb("review:tell", "part", "Send an instruction to a running agent.", changes=True),
        "retry": Verb("review:retry", "part", "Retry a failed subtask, optionally with guidance.", changes=True),
    },
    "Result": {},
    "Plans and settings": {
        "plans": Verb("plans:plans", "repository", "Manage plans: show, check, diff, graph, list, save or edit."),
        "config": Verb("configure:config", "repository", "Show the configuration and the origin of each value."),
        "explain-policy": Verb("configure:explain_policy", "repository", "Show how each kind of failure is handled."),
    },
    "This machine": {
        "clean": Verb("clean:clean", "machine", "Show or free the disk space used by runs."),
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
"""The order of the verbs in a group. Others come last."""


def _list(title: str) -> dict[str, Verb]:
    """The verbs of a group, including those of features."""
    verbs = dict(KERNEL[title])
    for feature in FEATURES.values():
        verbs.update(feature.verbs.get(title, {}))
    return {
        name: verbs[name] for name in sorted(verbs, key=lambda each: ORDER.index(each) if each in ORDER else len(ORDER))
    }


GROUPS: dict[str, dict[str, Verb]] = {title: verbs for title in KERNEL if (verbs := _list(title))}

VERBS: dict[str, Verb] = {name: verb for verbs in GROUPS.values() for name, verb in verbs.items()}
