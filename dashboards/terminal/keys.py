"""Every key, in one place: the help, the footer and the document are made of this."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A key, a word for the footer and a sentence for the help."""

    key: str
    word: str
    says: str


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    keys: tuple[Key, ...]


MOVE = Group(
    "Moving",
    (
        Key("↑↓ jk", "", "the row above, the row below"),
        Key("PgUp PgDn", "", "a page up or down; Ctrl-U and Ctrl-D do the same"),
        Key("g G", "", "the first row, the last row; at its end a page follows what is new"),
        Key("Enter", "open", "open what the cursor is on: a subtask, a question, a run, a version of the plan"),
        Key("Esc", "back", "back; on a page: the filter goes"),
        Key("Tab", "next page", "the next page; Shift-Tab the one before"),
        Key("0 … 6", "", "runs, overview, agents, plan, landing, incidents, events"),
        Key("/", "filter", "only rows that hold these words; Enter keeps the filter, Esc drops it"),
        Key("o", "order", "agents: the next order: busy ones first, then by column, as the arrow in the head says"),
    ),
)
ACT = Group(
    "Acting: each of these is a request; the run finds it in its inbox, now or when it goes on",
    (
        Key("a", "answer", "answer the question under the cursor, or the first that is open"),
        Key("A", "approve", "let what waits for you begin: all of it, or the subtask under the cursor"),
        Key("X", "reject", "say no to it, and why; the planner revises"),
        Key("E", "edit plan", "edit the plan in $EDITOR; what comes back is checked before anything changes"),
        Key("r", "retry", "try the subtask under the cursor again, with your guidance"),
        Key("P", "pause", "begin nothing new; once more: go on"),
        Key("W", "workers", "how many agents may be busy at once"),
        Key("B", "budget", "what the run may cost in all, in dollars"),
        Key("R", "resume", "work on a run that nobody works on"),
        Key("C", "cancel", "stop the run and what it is doing; asks first"),
        Key("D", "drain", "let what runs finish, then stop; asks first"),
    ),
)
SUBTASK = Group(
    "A subtask",
    (
        Key("1 … 4", "", "its story, its conversation as it goes on, its diff, its checks with their logs"),
        Key("[ ]", "attempt", "the attempt before, the next one"),
        Key("s", "shell", "a shell in a copy of what the attempt committed"),
        Key("e", "editor", "$EDITOR in such a copy"),
    ),
)
REPLAY = Group(
    "A replay",
    (
        Key("Space", "pause", "pause, and go on"),
        Key(".", "step", "to the next fact"),
        Key("+ -", "speed", "twice as fast, half as fast"),
        Key("< >", "jump", "ten seconds back, ten seconds on"),
    ),
)
REST = Group(
    "The screen",
    (
        Key("q", "leave", "leave; the run goes on without you"),
        Key("Ctrl-C", "", "ask whether to leave, drain or cancel"),
        Key("t", "light/dark", "light or dark"),
        Key("Ctrl-P", "commands", "every command, by name"),
        Key("?", "help", "this"),
    ),
)
GROUPS = (MOVE, ACT, SUBTASK, REPLAY, REST)


def help_text() -> str:
    lines = []
    for group in GROUPS:
        lines += [group.title, *(f"  {key.key:<10} {key.says}" for key in group.keys), ""]
    return "\n".join(lines).rstrip()
