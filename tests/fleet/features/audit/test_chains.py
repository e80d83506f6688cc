"""Chains are read in one pass, at the cost of what each fact changes: they are those of the plain definitions."""

from hypothesis import given

from fleet.core.base.ids import SubtaskId
from fleet.core.facts import facts as f
from fleet.core.history.evolve import evolve
from fleet.core.state.state import Review, RunState, Version
from fleet.features.audit.audit import read_facts
from tests.effort import examples
from tests.fleet.core.pretend import Pretend
from tests.fleet.core.test_run_properties import steps, worlds

Started = dict[tuple[SubtaskId, int], tuple[tuple[Version, ...], tuple[Review, ...]]]


@given(worlds)
@examples(60)
def test_chains_name_the_versions_verdicts_and_publications_that_came_before(world: Pretend) -> None:
    for _ in steps(world):
        pass
    read = read_facts(enumerate(world.facts, 1))
    assert (read.state, read.problems) == (world.state, ())
    started, tips = plainly(world.facts), [(fact.tip, fact.at) for fact in world.facts if isinstance(fact, f.Published)]
    if any(isinstance(fact, f.WorkLost) for fact in world.facts):
        return
    commits = [chain.member.commit for chain in read.chains]
    for place, chain in enumerate(read.chains):
        shown = [at for tip, at in tips if tip in commits[place:]]
        assert chain.published_at == (shown[0] if shown else None)
        if chain.start is not None:
            versions, reviews = started[chain.member.subtask, chain.member.attempt]
            approvals = [review for review in reviews if not review.rejected]
            assert chain.start.versions == versions
            assert chain.start.approval == (approvals[-1] if approvals else None)
            assert chain.start.rejections == tuple(review for review in reviews if review.rejected)


def plainly(facts: list[f.Fact]) -> Started:
    """The versions and the verdicts that were about each subtask when each attempt began."""
    state: RunState | None = None
    concerned: list[set[SubtaskId]] = []
    found: Started = {}
    for fact in facts:
        before, state = state, evolve(state, fact)
        if len(state.versions) > len(concerned):
            old = before.specs if before is not None else {}
            changed = {id_ for id_, spec in state.specs.items() if old.get(id_) != spec}
            retried = (
                {retry.id for retry in fact.revision.retry} if isinstance(fact, f.PlanRevised) else set[SubtaskId]()
            )
            concerned.append(changed | retried)
        if isinstance(fact, f.AttemptStarted):
            pairs = zip(state.versions, concerned, strict=True)
            versions = tuple(version for version, ids in pairs if fact.subtask in ids)
            reviews = tuple(review for review in state.reviews if fact.subtask in review.subtasks)
            found[fact.subtask, fact.number] = (versions, reviews)
    return found
