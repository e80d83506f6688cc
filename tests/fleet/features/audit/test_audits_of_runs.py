"""Audits of runs that nobody tampered with: played with chance, and with landed work that was lost."""

from hypothesis import given

from fleet.core.base.ids import Sha
from fleet.core.facts.facts import BatchTested
from fleet.features.audit.audit import AuditedBranch, AuditedCommit, audit_run, read_facts
from tests.fleet.core.history.test_landing_history import given_two_that_landed, lost
from tests.fleet.core.pretend import Pretend
from tests.fleet.core.test_run_properties import steps, worlds


@given(worlds)
def test_an_audit_accounts_for_every_run_without_tampering(world: Pretend) -> None:
    for _ in steps(world):
        pass
    account = read_facts(enumerate(world.facts, 1))
    assert account.state == world.state
    commits, below = list[AuditedCommit](), world.state.base
    for fact in world.facts:
        for member in fact.landed if isinstance(fact, BatchTested) else ():
            worker = world.state.subtasks[member.subtask].attempts[-1].worker
            said = (world.state.run, member.subtask, member.attempt, worker, "m")
            commits.append(AuditedCommit(member.commit, Sha(""), (below,), member.subtask, *said))
            below = member.commit
    audit = audit_run(account, world.state, AuditedBranch(below if commits else None, tuple(commits)))
    assert audit.problems == ()
    assert [problem for entry in audit.entries for problem in entry.problems] == []
    assert [entry.chain is not None for entry in audit.entries] == [True] * len(commits)


def test_an_account_of_a_run_knows_only_the_landing_that_stands() -> None:
    story = given_two_that_landed()
    lost(story, "tip-1", commits=("tip-2",), reland=("b",))
    story.batch_lands()
    account = read_facts(enumerate(story.facts, 1))
    assert [chain.member.subtask for chain in account.chains] == ["a", "b"]
    assert account.problems == ()
