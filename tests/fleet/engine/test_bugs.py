"""A rule of policy that raises: it is skipped until the state changes, told once, and the run goes on or ends."""

from collections.abc import Callable, Iterator

from fleet.core.facts import facts as f
from fleet.core.policy import decide as policy
from fleet.core.policy.decide import Rule
from fleet.core.state.state import RunState
from fleet.engine.loop import Engine
from tests.fleet.core.pretend import subtask_of
from tests.fleet.core.story import plan_of
from tests.fleet.fakes import FakeFleet, FakeWorker, wait_until

Raises = Callable[[RunState], bool]


def breaking(name: str, raises: Raises) -> tuple[tuple[Rule, ...], list[RunState]]:
    """The rules, one of which raises in some states, and the states in which it did."""
    raised = list[RunState]()

    def broken(rule: Rule) -> Rule:
        def ask(state: RunState, now: float) -> Iterator[f.Fact]:
            for fact in rule(state, now):
                if raises(state):
                    raised.append(state)
                    raise KeyError("oops")
                yield fact

        ask.__name__ = rule.__name__
        return ask

    rules = tuple(broken(rule) if rule.__name__ == name else rule for rule in policy.RULES)
    return rules, raised


async def test_a_rule_that_raises_about_one_subtask_ends_the_run_and_what_was_finished_lands_when_it_is_resumed() -> (
    None
):
    rules, _ = breaking("_form_batches", lambda state: "b" in state.landing.queue)
    fleet = FakeFleet(plan_of("a", "b", "c"), policy_rules=rules)
    state = await fleet.run()
    assert state.ending in {"partial", "failed"}  # whether another one landed before
    assert "internal error while fleet decided (form_batches): KeyError: 'oops'" in state.ending_why
    assert f"continue with `fleet resume {state.run}`" in state.ending_why
    assert (state.open_questions(), tuple(state.incidents)) == ([], ())
    assert fleet.worker.paid == {"a": 1, "b": 1, "c": 1}

    fleet.policy_rules = policy.RULES
    fleet.memory.appends.append([f.RunReopened(at=fleet.clock.now(), by="ada")])
    assert ((await fleet.run()).ending, fleet.worker.paid) == ("landed", {"a": 1, "b": 1, "c": 1})


async def test_a_rule_that_raises_is_not_asked_more_than_twice_and_the_trace_is_recorded_before_the_end() -> None:
    rules, raised = breaking("_start_attempts", lambda state: not subtask_of(state, "a").attempts)
    fleet = FakeFleet(plan_of("a"), policy_rules=rules)
    state = await fleet.run()
    first, second = raised
    assert (first.warnings, len(second.warnings), state.ending) == ((), 1, "failed")
    told, ended = [fact for fact in fleet.memory.facts if isinstance(fact, f.WarningNoted | f.RunEnded)]
    assert isinstance(told, f.WarningNoted)
    assert "Traceback (most recent call last)" in told.evidence
    assert "in ask" in told.evidence, "the rule that raised"
    assert isinstance(ended, f.RunEnded)


async def test_a_rule_that_raises_is_asked_again_when_the_state_has_changed() -> None:
    rules, raised = breaking("_form_batches", lambda state: state.working() > 0)
    fleet = FakeFleet(plan_of("a", "slow"), worker=FakeWorker(slow={"slow"}), policy_rules=rules)

    async def operator(_: Engine) -> None:
        await wait_until(lambda: len(raised) >= 2)
        fleet.worker.release()

    state = await fleet.run(operator)
    assert (state.ending, state.commits, state.attempts) == ("landed", 2, 2)


async def test_a_rule_that_raises_once_is_told_and_costs_nothing() -> None:
    left = [True]
    rules, raised = breaking("_start_attempts", lambda _: bool(left and left.pop()))
    state = await FakeFleet(plan_of("a", "b"), policy_rules=rules).run()
    assert (len(raised), state.ending, state.open_questions()) == (1, "landed", [])
    assert [text for text in state.warnings if "decided (start_attempts): KeyError" in text]
