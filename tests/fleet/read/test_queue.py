"""The merge queue: what waits and is tested, and what batches came to."""

from dashboards.text.event_text import events_of
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.read.follow import FollowedRun
from fleet.read.queue import PastBatch, merge_queue, past_batch, result_branch
from tests.dashboards.feeds import MemoryFeed
from tests.fleet.core.story import Story, plan_of


def waiting() -> Story:
    story = Story(Policy(every_commit_within_s=0, slots=1), plan_of("a", "b", "c"))
    story.work_is_done("a", "b", "c")
    return story


def test_what_is_tested_is_in_the_queue_until_it_lands() -> None:
    queue = merge_queue(waiting().state)
    assert [(entry.subtask, entry.is_suspect) for entry in queue.entries] == [("a", False), ("b", False), ("c", False)]
    assert queue.testing[0].members == ("a",)
    assert (queue.batches, queue.red, queue.suspects) == (len(queue.testing), 0, ())


def test_a_past_batch_knows_its_members_and_what_became_of_them() -> None:
    story = waiting()
    before = story.state
    (batch,) = before.landing.open_batches
    story.now += 7
    result = f.BatchTested(at=story.now, number=batch.number, tip="tip", landed=batch.members)
    past = past_batch(before, result)
    assert past.members == past.landed == past.subtasks == ("a",)
    assert past.seconds == story.now - batch.formed_at
    assert past_batch(None, result).members == (), "it is not known what it consisted of"


def test_a_follower_keeps_the_batches_that_were_tested() -> None:
    story = Story(plan=plan_of("a", "b", "c"))
    story.landed("a", "b", "c")
    watched = FollowedRun(MemoryFeed(story.facts), lambda: story.now, tell=events_of)
    watched.catch_up(10)
    assert all(isinstance(batch, PastBatch) for batch in watched.batches)
    assert {id_ for batch in watched.batches for id_ in batch.landed} == {"a", "b", "c"}
    assert result_branch(story.state).commits == 3
