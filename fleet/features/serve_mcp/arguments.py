"""The arguments of each tool, as a client's model writes them: parsed here, and unknown ones refused."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from fleet.app.input_files import LONGEST_EPIC

LONGEST_WAIT_S = 300

Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9._/-]+$")]
Run = Annotated[Name | None, Field(description="The run; left out: the latest one of this repository.")]
NamedRun = Annotated[Name, Field(description="The run, by its name.")]
SubtaskId = Annotated[Name, Field(description="The id of a subtask.")]


class Arguments(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Begin(Arguments):
    epic: str = Field(
        min_length=1, max_length=LONGEST_EPIC, description="The goal, as text: what should be true afterwards."
    )
    budget_dollars: float = Field(gt=0, description="What the run may cost at most. It has no default.")
    minutes: float | None = Field(default=None, gt=0, description="How long it may work.")
    workers: int | None = Field(default=None, ge=1, le=1000, description="How many agents may work at once.")
    name: Annotated[Name | None, Field(description="The run's name; its branch is fleet/NAME.")] = None


class OfRun(Arguments):
    run: Run = None


class Show(Arguments):
    run: Run = None
    subtask: Annotated[Name | None, Field(description="Show this subtask with its attempts and checks.")] = None
    what: Literal["plan", "incidents"] = Field(
        default="plan", description="Without a subtask: the plan as it is now, or what failed and what was done."
    )


class Diff(Arguments):
    run: Run = None
    subtask: SubtaskId
    attempt: int | None = Field(default=None, ge=1, description="The attempt; left out: the last one with a commit.")


class Answer(Arguments):
    run: NamedRun
    question: Annotated[Name, Field(description="The id of an open question, such as q1.")]
    text: str = Field(min_length=1, max_length=20_000, description="The answer, for the planner.")


class Approve(Arguments):
    run: NamedRun
    version: int = Field(ge=1, description="The version of the plan that was looked at; another one is refused.")
    subtasks: list[Name] = Field(min_length=1, max_length=1000, description="The subtasks to approve, one by one.")


class Pause(Arguments):
    run: NamedRun


class Wait(Arguments):
    run: Run = None
    seconds: float = Field(default=30, gt=0, le=LONGEST_WAIT_S, description="How long to wait at most.")
    until: Literal["news", "end"] = Field(
        default="news", description="news: until it needs somebody, or ends; end: only until it ends."
    )
