"""What takes the ground away from a whole run for ever: a key, credit, a model, a planner, the sandbox.

Everything waits or fails. It must end with a human asked, or at once with a plain word where nothing was spent yet;
never as done, and never without an end. Who meets it first, and when, is left to chance.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from json import dumps
from pathlib import Path
from random import Random

from tests.chaos.faults import EVER, NOTHING, Episode, Json, solve, subtask, wrong
from tests.chaos.hopeless import Verdict, within_limits
from tests.chaos.play import Played, play
from tests.e2e.stage import Going, Stage
from tests.worktrees.conftest import git

LONGEST_S = 300.0
PERSON = ("-c", "user.name=Ada", "-c", "user.email=ada@localhost")
SOON = {"FLEET_MODELS_ASK_AFTER_MINUTES": "0.03", "FLEET_MODELS_GIVE_UP_AFTER_MINUTES": "0.05"}
MONTH_S = 2_592_000
CODES = {"partial": 1, "failed": 3}
SPENT = {"type": "rate_limit_error", "message": "spent", "details": {"error_code": "spend_limit_reached"}}
NONSENSE: tuple[Json, ...] = (
    {"do": "mute"},
    {"do": "mute", "stop_reason": "max_tokens"},
    {"do": "mute", "stop_reason": "refusal"},
    {"do": "malformed", "how": "json"},
    {"do": "malformed", "how": "schema"},
    {"do": "malformed", "how": "tool"},
)


@dataclass(frozen=True)
class Setting:
    """A run that can't succeed: what is planned in it, and what goes wrong with it."""

    episodes: tuple[Episode, ...]
    planner: Json = field(default_factory=dict)
    more: Mapping[str, str] = field(default_factory=dict)
    meanwhile: Callable[[Stage, Going], None] | None = None


@dataclass(frozen=True)
class Lost:
    """A row of the table in docs/reliability.md."""

    row: int
    setting: Callable[[Random, Path], Setting]
    says: str = ""
    """What it ends with, where that is plain and there is nothing to ask."""


def _work(name: str, behaviour: Json, **more: object) -> Episode:
    return Episode(NOTHING, (subtask(name, **more),), {name: [behaviour]})


def on_calls(**trouble: object) -> Callable[[Random, Path], Setting]:
    """All workers meet it, each at a turn of its own; or the planner does, which is called because of a failure."""

    def setting(chance: Random, _: Path) -> Setting:
        if chance.random() < 0.5:
            episodes = (_work("fails", wrong("fails")), _work("fine", solve("fine")))
            return Setting(episodes, {"once_planned": {**trouble, "times": EVER}}, SOON)
        workers = [
            _work(name, {**trouble, "times": EVER, "turn": chance.randrange(3), "then": solve(name)})
            for name in ("one", "two", "three")
        ]
        return Setting(tuple(workers), {}, SOON)

    return setting


def _silly(chance: Random, _: Path) -> Setting:
    """From the first call on."""
    return Setting((_work("one", solve("one")),), {"faults": [{**chance.choice(NONSENSE), "times": EVER}]})


def _gone_silly(chance: Random, _: Path) -> Setting:
    """Once it has planned: what is planned goes on without it."""
    episodes = (_work("fails", wrong("fails")), _work("fine", solve("fine")))
    return Setting(episodes, {"once_planned": {**chance.choice(NONSENSE), "times": EVER}})


def _no_plan(chance: Random, _: Path) -> Setting:
    """A plan that does not hold together, whatever is answered to it."""
    wrongs: tuple[dict[str, object], ...] = (
        {"depends_on": ["two"]},
        {"depends_on": ["nobody"]},
        {"touches": ["../outside.txt"]},
        {"worker": "nobody"},
    )
    return Setting(
        (_work("one", solve("one"), **chance.choice(wrongs)), _work("two", solve("two"), depends_on=["one"]))
    )


def _red_base(_: Random, __: Path) -> Setting:
    return Setting((_work("one", solve("one")),), more={"FLEET_CHECKS_GATE": "echo red; exit 1"})


def _no_sandbox(chance: Random, room: Path) -> Setting:
    """Bubblewrap is taken away while the run goes on."""
    programs = room / "programs"
    programs.mkdir(parents=True)
    for name in ("git", "sh", "bwrap"):
        (programs / name).symlink_to(shutil.which(name) or name)
    calls = chance.randrange(1, 6)

    def take_away(stage: Stage, going: Going) -> None:
        stage.wait("r", lambda state: state.spent.calls >= calls, going)
        (programs / "bwrap").unlink()

    work = tuple(_work(name, {**solve(name), "turns": 3}) for name in ("one", "two", "three"))
    return Setting(work, {}, {"PATH": str(programs)}, take_away)


def _moved(chance: Random, room: Path) -> Setting:
    """A person commits onto the result branch while the run goes on; it is theirs then."""
    names = [f"step-{number}" for number in range(4)]
    after = chance.randrange(1, 3)

    def commit(stage: Stage, going: Going) -> None:
        stage.wait("r", lambda state: state.published is not None and state.commits >= after, going)
        repository = room / "work"
        tree = git(repository, "rev-parse", "fleet/r^{tree}")
        mine = git(repository, *PERSON, "commit-tree", tree, "-p", "fleet/r", "-m", "mine")
        git(repository, "update-ref", "refs/heads/fleet/r", mine)

    work = (_work(name, solve(name), depends_on=names[max(0, at - 1) : at]) for at, name in enumerate(names))
    return Setting(tuple(work), meanwhile=commit)


LOST: dict[str, Lost] = {
    "the key is revoked": Lost(10, on_calls(do="http", status=401, message="invalid x-api-key")),
    "the credit is spent": Lost(11, on_calls(do="http", status=402, message="your credit balance is too low")),
    "the spend limit is reached": Lost(
        3, on_calls(do="http", status=429, body=dumps({"type": "error", "error": SPENT}))
    ),
    "the model is retired": Lost(12, on_calls(do="http", status=404, message="model: retired")),
    "overloaded for ever": Lost(4, on_calls(do="http", status=529)),
    "limited for ever": Lost(2, on_calls(do="http", status=429, retry_after=MONTH_S)),
    "a planner that answers nonsense": Lost(43, _silly),
    "a planner that answers nonsense once it has planned": Lost(43, _gone_silly),
    "a plan that never holds together": Lost(42, _no_plan),
    "the base is red": Lost(36, _red_base, says="the gate is RED on the base"),
    "the result branch is somebody else's": Lost(40, _moved, says="does not show what landed"),
    "the sandbox is gone": Lost(64, _no_sandbox),
}


def lost(kind: str, number: int, folder: Path, seed: int) -> Verdict:
    """One run of a kind, to its end."""
    room = folder / f"lost-{list(LOST).index(kind)}-{number}"
    room.mkdir(parents=True)
    setting = LOST[kind].setting(Random(f"{seed}/{kind}/{number}"), room)  # noqa: S311 - it is no secret
    run = play(
        room,
        setting.episodes,
        seed=seed,
        planner=setting.planner,
        more=setting.more,
        meanwhile=setting.meanwhile,
        longest_s=LONGEST_S,
    )
    return _verdict(kind, run)


def _verdict(kind: str, run: Played) -> Verdict:
    state, code, says = run.left, run.done.code, LOST[kind].says
    ending = state.ending if state is not None else "failed"
    return Verdict(
        kind,
        asked=says in run.done.said if says else bool(run.state.questions),
        landed=ending == "landed" or code == 0,
        endless=ending is None or code != CODES.get(ending),
        within=state is None or within_limits(state),
        said=f"{ending}: {state.ending_why if state is not None else ''}",
    )
