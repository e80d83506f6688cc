"""Facts: what happened in a run, past tense, in the order it is true. The journal holds nothing else.

A fact that was ever written must load for ever: fields are added with defaults, never renamed or removed. Others import
the facts and their parts from here.
"""

from typing import Annotated

from pydantic import Field, TypeAdapter

from fleet.core.state.kinds.attempt_facts import (
    AttemptCommitted,
    AttemptFact,
    AttemptFailed,
    AttemptStarted,
    AttemptUnchanged,
    AttemptVerified,
    BatchFormed,
    BatchTested,
    LandingFact,
    Published,
    PublishFailed,
    RemedyChosen,
    WorkerStarted,
    WorkLost,
)
from fleet.core.state.kinds.estimate_parts import Assumed, CallTally, Expectation, Forecast, Spread, SubtaskEstimate
from fleet.core.state.kinds.fact_parts import (
    FREE,
    CheckRun,
    Ejected,
    Ending,
    Failure,
    FailureKind,
    GateTrial,
    Happened,
    IssueSource,
    LeftOut,
    Member,
    PastTask,
    RanTests,
    Rehearsal,
    RehearsalNote,
    Relanding,
    Remedy,
    Report,
    Role,
    RungChoice,
    RungOption,
    RungReason,
    RungTally,
    ServiceCondition,
    SetupNetwork,
    SetupRun,
    Strategy,
)
from fleet.core.state.kinds.plan_facts import (
    CancelRequested,
    DrainRequested,
    InstructionGiven,
    InstructionRead,
    LimitsChanged,
    Paused,
    PeopleFact,
    PlanApproved,
    PlanFact,
    PlanForecast,
    PlanGraded,
    PlannerCalled,
    PlannerFailed,
    PlanRejected,
    PlanRevised,
    QuestionAnswered,
    QuestionAsked,
    RetryRequested,
    Unpaused,
)
from fleet.core.state.kinds.review_facts import (
    AskedVote,
    Finding,
    FindingResult,
    FindingSettled,
    FindingsSettled,
    ReviewBatched,
    ReviewFact,
    ReviewUnbatched,
    ReviewVoted,
    Vote,
)
from fleet.core.state.kinds.run_facts import (
    BaseChecked,
    BudgetRanLow,
    CallLost,
    CallRefused,
    CallsHeld,
    EngineStarted,
    EngineStopped,
    EvidenceRead,
    GateTried,
    ModelCalled,
    NodeAddRequested,
    NodeConnected,
    NodeDrained,
    NodeFact,
    NodeLost,
    NodeUndrained,
    RehearsalNoted,
    ResultScored,
    RollbackStarted,
    RunEnded,
    RunFact,
    RunReopened,
    RunStarted,
    ServiceChanged,
    SetupRan,
    WarningNoted,
)

Fact = RunFact | PlanFact | AttemptFact | LandingFact | PeopleFact | NodeFact | ReviewFact

FACT: TypeAdapter[Fact] = TypeAdapter(Annotated[Fact, Field(discriminator="kind")])
