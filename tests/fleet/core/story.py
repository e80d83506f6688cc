"""A story about a run, as facts: what is given, what happens, what is decided. No effect is carried out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fleet.core.base.ids import QuestionId, SubtaskId
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import Plan, Subtask
from fleet.core.plans.revision import Revision
from fleet.core.policy.decide import decide, next_wake
from fleet.core.policy.effects import Command, effects
from fleet.core.state.state import Planning, Question, RunState
from fleet.core.state.status import Status, status_of
from fleet.core.state.subtasks import Attempt, SubtaskState
from tests.fleet.core.pretend import started, subtask, subtask_of

F = TypeVar("F", bound=f.TimedFact)
WHO = "ada"


def plan_of(*lines: str, **fields: object) -> Plan:
    """A plan from lines like `api needs schema store`; `fields` hold for every subtask."""
    made = []
    for line in lines:
        id_, _, needs = line.partition(" needs ")
        made.append(subtask(id_, *needs.split()).model_copy(update=fields))
    return Plan(goal="the epic", subtasks=tuple(made))


def failure(kind: f.FailureKind = "check", summary: str = "red") -> f.Failure:
    return f.Failure(kind=kind, summary=summary, evidence=f"{summary}, it says")


def connected(node: str, **fields: object) -> f.NodeConnected:
    told = {"at": 0.0, "version": "1", "host": "h", "processors": 4, "memory_bytes": 1, "workers": 1, "checks": 1}
    return f.NodeConnected.model_validate({**told, "node": node, **fields})


@dataclass
class Story:
    """Facts in their order, and what is true after each. Every fact is followed by what policy decides."""

    policy: Policy = field(default_factory=Policy)
    plan: Plan | None = None
    rollback: Plan | None = None
    relanding: f.Relanding | None = None
    now: float = 0.0
    facts: list[f.Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        first = started(self.policy, self.plan).model_copy(
            update={"rollback": self.rollback, "relanding": self.relanding}
        )
        self.facts.append(first)
        self._state = evolve(None, first)
        engine = f.EngineStarted(at=0.0, epoch=1, pid=1, host="here", version="1")
        self.happens(engine)

    # ---- given and when

    @property
    def state(self) -> RunState:
        return self._state

    def happens(self, *facts: f.Fact) -> None:
        for fact in facts:
            self._state = evolve(self._state, fact)
            self.facts.append(fact)
        while decisions := decide(self._state, self.now):
            for decision in decisions:
                self._state = evolve(self._state, decision)
                self.facts.append(decision)

    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.happens()

    def time_passes_to_the_next_wake(self) -> None:
        wake = next_wake(self.state, self.now)
        assert wake is not None, "nothing waits for time"
        self.time_passes(wake - self.now)

    def planner_answers(self, revision: Revision | None = None, **fields: object) -> None:
        call = self.state.planning.open
        assert call is not None, "the planner was not called"
        revision = revision or Revision.model_validate({"assessment": "so it is", **fields})
        self.happens(f.PlanRevised(at=self.now, call=call, by="planner", revision=revision))

    def planner_plans(self, *lines: str) -> None:
        self.planner_answers(add=plan_of(*lines).subtasks)

    def planner_fails(self, kind: f.FailureKind = "transient") -> None:
        call = self.state.planning.open
        assert call is not None, "the planner was not called"
        self.happens(f.PlannerFailed(at=self.now, call=call, failure=failure(kind), not_before=self.now + 1))

    def attempt_fails(self, id_: str, kind: f.FailureKind = "check", report: f.Report | None = None) -> None:
        number = self.current(id_).number
        self.happens(f.AttemptFailed(at=self.now, subtask=id_, number=number, failure=failure(kind), report=report))

    def worker_starts(self, id_: str, node: str = "") -> None:
        self.happens(f.WorkerStarted(at=self.now, subtask=id_, number=self.current(id_).number, node=node))

    def model_is_called(self, id_: str, dollars: float | None = 0.01, **fields: object) -> None:
        usage, about = Usage(input=10, output=1), {"subtask": id_, "attempt": self.current(id_).number}
        called = f.ModelCalled(at=self.now, role="worker", model="m", usage=usage, dollars=dollars, seconds=1.0, turn=1)
        self.happens(called.model_copy(update={"doing": "bash", **about, **fields}))

    def work_is_done(self, *ids: str) -> None:
        """Committed, and its checks pass: it waits for landing."""
        for id_ in ids:
            number = self.current(id_).number
            report = f.Report(status="done", summary=f"did {id_}")
            committed = f.AttemptCommitted(
                at=self.now, subtask=id_, number=number, commit=f"c-{id_}", paths=(f"{id_}.py",), report=report
            )
            self.happens(committed, f.AttemptVerified(at=self.now, subtask=id_, number=number, checks=()))

    def batch_lands(self) -> None:
        """The oldest of the batches that are tested side by side is green."""
        assert self.state.landing.open_batches, "nothing is being landed"
        batch = self.state.landing.open_batches[0]
        self.happens(f.BatchTested(at=self.now, number=batch.number, tip=f"tip-{batch.number}", landed=batch.members))

    def landed(self, *ids: str) -> None:
        """The whole way of some subtasks, up to the user's branch."""
        self.work_is_done(*ids)
        while self.state.landing.open_batches:
            self.batch_lands()
        self.is_published()

    def is_published(self) -> None:
        self.happens(f.Published(at=self.now, tip=self.state.tip))

    def human_answers(self, question: str, text: str = "continue") -> None:
        self.happens(f.QuestionAnswered(at=self.now, question=question, answer=text, by=WHO))

    # ---- then

    def of(self, id_: str) -> SubtaskState:
        return subtask_of(self.state, id_)

    def spec(self, id_: str) -> Subtask:
        return self.state.spec(SubtaskId(id_))

    def area(self, id_: str) -> Planning:
        return self.state.areas[SubtaskId(id_)]

    def current(self, id_: str) -> Attempt:
        attempt = self.of(id_).current
        assert attempt is not None, f"{id_} is not under way"
        return attempt

    def status(self, id_: str) -> Status:
        return status_of(self.state, SubtaskId(id_), self.now)

    def statuses(self) -> dict[str, Status]:
        return {id_: self.status(id_) for id_ in self.state.plan.ids}

    def effects(self) -> tuple[Command, ...]:
        return effects(self.state, self.now)

    def facts_of(self, kind: type[F]) -> list[F]:
        return [fact for fact in self.facts if isinstance(fact, kind)]

    def question(self, id_: str) -> Question:
        return self.state.questions[QuestionId(id_)]

    def questions(self) -> Sequence[str]:
        return [question.text for question in self.state.open_questions()]
