"""The recoverable faults by level: the subtask, and the fault that its worker meets.

A fault ends when an attempt differs like a sound remedy would make it: its guidance contains the evidence, it starts
from a new base, it is a part of a split, or a better model works on it. The planner has no information about the
faults.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from fleet.core.base.ids import SubtaskId

Json = dict[str, Any]
OUTPUT_BYTES = 20_000_000
FLAKY_BELOW = 77  # of 256: three in ten
BOTH, ALONE = "both", "alone"
PARTS = ("a", "b")
BETTER = "*sonnet*"
EVER = 1_000_000


@dataclass(frozen=True)
class Episode:
    """One fault, on one subtask or on several that conflict."""

    fault: "Fault"
    subtasks: tuple[Json, ...]
    workers: Mapping[str, Sequence[Json]]
    files: Mapping[str, str] = field(default_factory=dict)
    """The files that it needs in the repository."""
    pace_s: float = 0.0
    """Duration of each worker turn."""
    innocent: frozenset[str] = frozenset()
    """Subtasks that it must not affect: one attempt, no incident."""

    @property
    def ids(self) -> tuple[SubtaskId, ...]:
        return tuple(SubtaskId(subtask_["id"]) for subtask_ in self.subtasks)


@dataclass(frozen=True)
class Fault:
    """A row of the table in docs/internals/reliability.md."""

    row: int
    level: int
    name: str
    play: Callable[["Fault", str, Random], Episode]
    classes: frozenset[str] = frozenset()
    """The incidents it may open. Empty: the retries of the call must suffice, and no attempt fails."""
    share: int = 1
    """Weight of the fault within its level."""

    def episode(self, name: str, chance: Random) -> Episode:
        return self.play(self, name, chance)


# ---- a subtask and its work -----------------------------------------------------------------------------------------


def word(name: str) -> str:
    """Return the word that a subtask has to write. Only the evidence of a failed check reveals it."""
    return f"word-{name}"


def files_of(name: str) -> dict[str, str]:
    return {f"{name}/{part}.txt": f"{word(name)}\n" for part in PARTS}


def check(name: str, part: str, before: str = "") -> Json:
    path = f"{name}/{part}.txt"
    hint = f"echo 'expected in {path}: {word(name)}'"
    return {"criterion": f"{path} is right", "run": f"{before}grep -qx {word(name)} {path} || {{ {hint}; exit 1; }}"}


def check_of(path: str) -> Json:
    return {"criterion": f"{path} exists", "run": f"test -s {path}"}


def subtask(name: str, **more: Any) -> Json:
    return {
        "id": name,
        "title": f"Write {name}",
        "goal": f"Write both files of {name}.",
        "acceptance": [check(name, part) for part in PARTS],
        "touches": [f"{name}/**"],
        **more,
    }


def solve(name: str) -> Json:
    return {"do": "solve", "files": files_of(name)}


def part_of(name: str, part: str) -> Json:
    """The work of one part of a split subtask."""
    return {"do": "solve", "files": {f"{name}/{part}.txt": f"{word(name)}\n"}}


def wrong(name: str) -> Json:
    return {"do": "wrong", "files": dict.fromkeys(files_of(name), "something else\n")}


def until(meanwhile: Json, then: Json, **what: Any) -> Json:
    return {"do": "until", **what, "meanwhile": meanwhile, "then": then}


def _episode(fault: Fault, name: str, attempts: Sequence[Json], **more: Any) -> Episode:
    parts = {f"{name}-{part}": [part_of(name, part)] for part in PARTS}
    return Episode(fault, (subtask(name, **more),), {name: attempts, **parts})


def on_the_wire(**behaviour: Any) -> Callable[[Fault, str, Random], Episode]:
    """A fault of a call, in a random turn."""

    def play(fault: Fault, name: str, chance: Random) -> Episode:
        turn = behaviour.get("turn", chance.randrange(3))
        return _episode(fault, name, [{**behaviour, "turn": turn, "then": solve(name)}])

    return play


def in_the_work(
    bad: Callable[[str], Json], guided: str | None = None, **more: Any
) -> Callable[[Fault, str, Random], Episode]:
    """Return bad work until the guidance contains `guided`, which only the evidence reveals, or until the next
    attempt."""

    def play(fault: Fault, name: str, _: Random) -> Episode:
        when: Json = {"guided": guided.replace("NAME", name)} if guided else {"attempt": 2}
        return _episode(fault, name, [until(bad(name), solve(name), **when)], **more)

    return play


def shell(*commands: str) -> Callable[[str], Json]:
    """Return commands without effect."""
    return lambda name: {"do": "shell", "commands": [command.replace("NAME", name) for command in commands]}


def survived(command: str) -> Callable[[Fault, str, Random], Episode]:
    """A command that fails in the box, after which the same attempt continues."""

    def play(fault: Fault, name: str, _: Random) -> Episode:
        write = " && ".join(f"echo {word(name)} > {path}" for path in files_of(name))
        return _episode(fault, name, [{"do": "shell", "commands": [command, f"mkdir -p {name} && {write}"]}])

    return play


def _split(fault: Fault, name: str, _: Random) -> Episode:
    return _episode(fault, name, [{"do": "too_complex"}])


def _weak(fault: Fault, name: str, _: Random) -> Episode:
    return _episode(fault, name, [until(wrong(name), solve(name), model=BETTER)])


def _slow(fault: Fault, name: str, _: Random) -> Episode:
    return replace(_episode(fault, name, [solve(name)]), pace_s=3.0)


def _hangs(fault: Fault, name: str, _: Random) -> Episode:
    """Return a check that runs a worker's program, which ignores TERM and never ends until the guidance reveals it."""
    script = f"{name}/run.sh"
    hang = f"mkdir -p {name} && printf \"trap '' TERM; while :; do sleep 60; done\" > {script}"
    bad = {"do": "shell", "commands": [hang]}
    good = {"do": "solve", "files": {script: "exit 0\n"}}
    runs = [{"criterion": "It runs", "run": f"sh {script}", "timeout_s": 4}]
    return _episode(fault, name, [until(bad, good, guided="stopped after")], acceptance=runs)


def _flaky(fault: Fault, name: str, _: Random) -> Episode:
    """A check that fails three times in ten whatever the work."""
    flake = f'[ "$(od -An -N1 -tu1 /dev/urandom)" -ge {FLAKY_BELOW} ] && '
    return _episode(fault, name, [solve(name)], acceptance=[check(name, "a", flake), check(name, "b")])


def _clash(fault: Fault, name: str, _: Random) -> Episode:
    """Two subtasks that change one line, from one base."""
    path, ids = f"{name}/words.txt", (f"{name}-x", f"{name}-y")
    tasks = tuple(
        subtask(id_, touches=[path], acceptance=[{"criterion": f"{id_} is named", "run": f"grep -qw {id_} {path}"}])
        for id_ in ids
    )
    work = {id_: [{"do": "shell", "commands": [f"sed -i 's/$/ {id_}/' {path}"]}] for id_ in ids}
    return Episode(fault, tasks, work, {path: "words\n"})


def _together_red(fault: Fault, name: str, _: Random) -> Episode:
    """Return two subtasks that pass separately. The gate fails on both together and explains why."""
    ids = (f"{name}-x", f"{name}-y")
    tasks, work = [], {}
    for id_, side in zip(ids, ("x", "y"), strict=True):
        path = f"{BOTH}/{name}/{side}.txt"
        tasks.append(subtask(id_, touches=[path], acceptance=[check_of(path)]))
        first, other = ({"do": "solve", "files": {path: text}} for text in ("old\n", "new\n"))
        work[id_] = [until(first, other, guided=f"{BOTH}/{name} does not fit")]
    return Episode(fault, tuple(tasks), work)


def _stale(fault: Fault, name: str, _: Random) -> Episode:
    """The later subtask reverts what landed before it, as an agent does that copies files of an old tree."""
    first, later = f"{name}-x", f"{name}-y"
    kept = f"{name}/x.txt"
    tasks = (
        subtask(first, touches=[kept], acceptance=[{"criterion": "It is new", "run": f"grep -qx new {kept}"}]),
        subtask(later, depends_on=[first]),
    )
    stale = {"do": "stray", "files": files_of(later), "outside": {kept: "old\n"}}
    work = {
        first: [{"do": "solve", "files": {kept: "new\n"}}],
        later: [until(stale, solve(later), guided=kept)],
    }
    return Episode(fault, tasks, work, {kept: "old\n"}, innocent=frozenset({first}))


def _one_of_eight(fault: Fault, name: str, _: Random) -> Episode:
    """Return eight subtasks whose own checks pass. One of them breaks the gate wherever it is merged."""
    ids = [f"{name}-{number}" for number in range(8)]
    path = f"{ALONE}/{ids[5]}.txt"
    tasks, work = [], {}
    for id_ in ids:
        tasks.append(subtask(id_, touches=[f"{ALONE}/{id_}.txt"], acceptance=[check_of(f"{ALONE}/{id_}.txt")]))
        work[id_] = [{"do": "solve", "files": {f"{ALONE}/{id_}.txt": "good\n"}}]
    bad = {"do": "solve", "files": {path: "bad\n"}}
    work[ids[5]] = [until(bad, work[ids[5]][0], guided=f"{path} is bad")]
    return Episode(fault, tuple(tasks), work, innocent=frozenset(ids) - {ids[5]})


def _retired(fault: Fault, name: str, chance: Random) -> Episode:
    """Return a model that the service has retired. The configuration names its successor."""
    retired = {"do": "http", "status": 404, "message": "model: retired", "times": EVER, "turn": chance.randrange(3)}
    return _episode(fault, name, [until({**retired, "then": solve(name)}, solve(name), model=BETTER)])


GATE = f"""\
#!/bin/sh
# Red where both sides still say `old`, though each is right by itself, and where a file is bad.
red=0
for path in $(grep -lx bad {ALONE}/*.txt 2>/dev/null); do
    echo "$path is bad"
    red=1
done
for pair in {BOTH}/*/; do
    [ -f "$pair/x.txt" ] && [ -f "$pair/y.txt" ] || continue
    if grep -q old "$pair/x.txt" && grep -q old "$pair/y.txt"; then
        echo "${{pair%/}} does not fit: both sides are old"
        red=1
    fi
done
exit $red
"""


# ---- several faults at once ------------------------------------------------------------------------------------------

WIRE: tuple[Json, ...] = (
    {"do": "http", "status": 529, "times": 2},
    {"do": "http", "status": 429, "retry_after": 0.2},
    {"do": "http", "status": 503, "body": "<html>Bad gateway</html>"},
    {"do": "break_stream", "how": "reset"},
    {"do": "break_stream", "how": "end"},
    {"do": "break_stream", "how": "error"},
    {"do": "malformed", "how": "json"},
    {"do": "malformed", "how": "tool", "times": 2},
    {"do": "mute"},
    {"do": "mute", "stop_reason": "max_tokens"},
)
WORK: tuple[Callable[[str], Json], ...] = (
    wrong,
    lambda name: {"do": "stray", "files": files_of(name), "outside": {"README.md": "mine\n"}},
    lambda _: {"do": "claim"},
    lambda _: {"do": "fail", "kind": "tool", "message": "the tool broke"},
    lambda _: {"do": "mute", "stop_reason": "refusal", "times": 9, "text": "I would rather not."},
    lambda _: {"do": "malformed", "how": "schema", "times": 9},
)


def _compound(fault: Fault, name: str, chance: Random) -> Episode:
    """One or two failures of work, or a split with a failing part, each with a call fault on the way."""

    def with_call_fault(then: Json) -> Json:
        if then["do"] in {"mute", "malformed"}:
            return then
        return {**chance.choice(WIRE), "turn": chance.randrange(2), "then": then}

    if chance.random() < 0.25:
        workers = {name: [with_call_fault({"do": "too_complex"})]}
        for part in PARTS:
            good = part_of(name, part)
            bad = {**good, "do": "wrong", "files": dict.fromkeys(good["files"], "something else\n")}
            workers[f"{name}-{part}"] = [with_call_fault(until(bad, good, guided=word(name)))]
        return Episode(fault, (subtask(name),), workers)
    bads = [bad(name) for bad in chance.sample(WORK, chance.choice((1, 1, 2)))]
    return _episode(fault, name, [*map(with_call_fault, bads), with_call_fault(solve(name))])


# ---- the table -------------------------------------------------------------------------------------------------------

TRANSIENT, PROTOCOL = frozenset({"transient"}), frozenset({"protocol"})

FAULTS: tuple[Fault, ...] = (
    Fault(1, 1, "429 with retry-after", on_the_wire(do="http", status=429, retry_after=0.3)),
    Fault(2, 1, "429, retry-after of 30 days", on_the_wire(do="http", status=429, retry_after=2_592_000)),
    Fault(2, 1, "429, retry-after nan", on_the_wire(do="http", status=429, headers={"retry-after": "nan"})),
    Fault(2, 1, "429, retry-after -5", on_the_wire(do="http", status=429, headers={"retry-after": "-5"})),
    Fault(4, 1, "529 three times", on_the_wire(do="http", status=529, times=3)),
    Fault(5, 1, "500 once", on_the_wire(do="http", status=500)),
    Fault(
        6,
        1,
        "500, not to be retried",
        on_the_wire(do="http", status=500, headers={"x-should-retry": "false"}),
        frozenset({"other"}),
    ),
    Fault(7, 1, "503 with a page", on_the_wire(do="http", status=503, body="<html>Bad gateway</html>")),
    Fault(7, 1, "200 without a body", on_the_wire(do="http", status=200, body="")),
    Fault(7, 1, "200 with other JSON", on_the_wire(do="http", status=200, body='{"ok": true}')),
    Fault(8, 1, "400 prompt too long", on_the_wire(do="http", status=400, message="prompt is too long", turn=2)),
    Fault(9, 1, "413", on_the_wire(do="http", status=413, message="too large", turn=2)),
    Fault(12, 1, "404, another model named", _retired, TRANSIENT),
    Fault(13, 2, "error event in the stream", on_the_wire(do="break_stream", how="error")),
    Fault(14, 2, "stream ends early", on_the_wire(do="break_stream", how="end")),
    Fault(15, 2, "stream ends within a tool's input", on_the_wire(do="break_stream", how="end", turn=0)),
    Fault(16, 2, "tool input is not JSON, twice", on_the_wire(do="malformed", how="json", times=2)),
    Fault(16, 2, "tool input is not JSON, repeatedly", on_the_wire(do="malformed", how="json", times=3), PROTOCOL),
    Fault(17, 2, "unknown tool", on_the_wire(do="malformed", how="tool")),
    Fault(17, 2, "tool input against the schema", on_the_wire(do="malformed", how="schema", times=2)),
    Fault(18, 2, "nothing but pings", on_the_wire(do="hang", seconds=30, pings=True)),
    Fault(19, 2, "silence", on_the_wire(do="hang", seconds=30)),
    Fault(20, 2, "slow but alive", _slow),
    Fault(21, 2, "connection reset", on_the_wire(do="break_stream", how="reset")),
    Fault(22, 2, "max_tokens", on_the_wire(do="mute", stop_reason="max_tokens", times=2)),
    Fault(
        23, 2, "context window exceeded", on_the_wire(do="mute", stop_reason="model_context_window_exceeded", turn=2)
    ),
    Fault(24, 2, "pause_turn", on_the_wire(do="mute", stop_reason="pause_turn", times=2)),
    Fault(25, 2, "refusal once", on_the_wire(do="mute", stop_reason="refusal"), frozenset({"refusal"})),
    Fault(26, 2, "an empty answer", on_the_wire(do="mute", text="")),
    Fault(27, 2, "unknown stop reason", on_the_wire(do="mute", stop_reason="out_of_the_blue")),
    Fault(28, 3, "the same action", in_the_work(shell(*["ls"] * 9), "the same action"), PROTOCOL),
    Fault(29, 3, "claims done, nothing done", in_the_work(lambda _: {"do": "claim"}), frozenset({"empty"})),
    Fault(
        30,
        3,
        "out of bounds",
        in_the_work(
            lambda name: {"do": "stray", "files": files_of(name), "outside": {"README.md": "mine\n"}}, "README.md"
        ),
        frozenset({"bounds"}),
    ),
    Fault(31, 3, "turns are used up", in_the_work(shell(*(f"echo {n}" for n in range(30)))), frozenset({"budget"})),
    Fault(32, 3, "a check hangs, TERM ignored", _hangs, frozenset({"check"})),
    Fault(33, 3, "20 MB of output", survived(f"yes | head -c {OUTPUT_BYTES}")),
    Fault(34, 3, "out of memory", survived("python3 -c 'x = bytearray(1 << 33)'")),
    Fault(34, 3, "a fork too many", survived("ulimit -u 1; (true) & wait")),
    Fault(52, 3, "disk is full", survived("head -c 3000000000 /dev/zero > /tmp/much; rm -f /tmp/much")),
    Fault(
        31,
        3,
        "a tool is broken",
        in_the_work(lambda name: {"do": "fail", "kind": "tool", "message": f"broke: {name}"}, "broke: NAME"),
        frozenset({"tool"}),
    ),
    Fault(45, 4, "a check fails", in_the_work(wrong, "expected in NAME/a.txt: word-NAME"), frozenset({"check"})),
    Fault(45, 4, "beyond the model", _weak, frozenset({"check"})),
    Fault(35, 4, "a flaky check", _flaky, frozenset({"check", "integration"})),
    Fault(37, 4, "text conflict", _clash, frozenset({"conflict"}), share=2),
    Fault(38, 4, "red together", _together_red, frozenset({"integration"}), share=2),
    Fault(39, 4, "a stale tree", _stale, frozenset({"bounds"})),
    Fault(41, 4, "one bad of eight", _one_of_eight, frozenset({"integration"})),
    Fault(42, 5, "too complex", _split, frozenset({"too_complex"})),
    Fault(0, 5, "two or three at once", _compound, frozenset({"any"}), share=5),
)
NOTHING = Fault(0, 0, "nothing", lambda fault, name, _: _episode(fault, name, [solve(name)]))
"""No fault at all."""
LEVELS = (1, 2, 3, 4, 5)
