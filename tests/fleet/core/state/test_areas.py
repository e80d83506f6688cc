"""Areas: a planner of its own for a part of a wide epic, with a state and a share of the budget of its own."""

from fleet.core.base.ids import SubtaskId
from fleet.core.base.usage import Usage
from fleet.core.facts import facts as f
from fleet.core.plans.limits import Policy
from fleet.core.plans.plan import PLANNER, Estimate, Plan, Subtask
from fleet.core.plans.revision import PlanContext, Revision, revise_plan
from fleet.core.policy.effects import CallPlanner
from fleet.core.policy.planner_view import area_state, planner_record, planner_state
from fleet.core.state.status import Area, allowance, area_spend, for_revision, in_charge
from tests.fleet.core.pretend import attempt_at, checks_of, subtask
from tests.fleet.core.story import Story, failure, plan_of

AUTH = SubtaskId("auth")


def area(id_: str, *needs: str, **fields: object) -> Subtask:
    return subtask(id_, *needs).model_copy(update={"worker": PLANNER, **fields})


def area_of(id_: str | None) -> Area:
    return SubtaskId(id_) if id_ is not None else None


def began(policy: Policy | None = None, *more: Subtask, **fields: object) -> Story:
    """A run whose planner made the area `auth`, which `docs` waits for; its planner is being asked."""
    story = Story(policy or Policy())
    story.planner_answers(add=(area("auth", **fields), subtask("docs", "auth"), *more))
    return story


def answers(story: Story, area_: str, **fields: object) -> None:
    call = story.area(area_).open
    assert call is not None, f"the planner of {area_} was not called"
    revision = Revision.model_validate({"assessment": "so it is", **fields})
    story.happens(f.PlanRevised(at=story.now, call=call, by="planner", revision=revision, area=area_))


def plans(story: Story, area_: str, *lines: str) -> None:
    answers(story, area_, add=plan_of(*lines).subtasks)


def problems(story: Story, revision: Revision, area_: str | None) -> list[str]:
    revised = revise_plan(story.state.plan, revision, for_revision(story.state, area_of(area_)), PlanContext())
    return [] if isinstance(revised, Plan) else [str(problem) for problem in revised]


def shown(story: Story, area_: str | None) -> dict[str, str]:
    return {one["id"]: one["status"] for one in planner_state(story.state, story.now, area_of(area_))["subtasks"]}


def verified(story: Story, id_: str) -> None:
    number = story.current(id_).number
    story.happens(f.AttemptVerified(at=story.now, subtask=id_, number=number, checks=()))


def test_an_area_gets_a_planner_of_its_own_and_no_workers_place() -> None:
    story = began(Policy(workers=1), subtask("other"))
    assert story.statuses() == {"auth": "running", "docs": "waiting", "other": "running"}
    assert story.effects() == (CallPlanner(2, AUTH), attempt_at("other", 1))


def test_each_planner_is_shown_its_own_and_hears_of_its_own() -> None:
    story = began()
    plans(story, "auth", "tokens", "login needs tokens")
    assert shown(story, None) == {"auth": "running", "docs": "waiting"}
    assert shown(story, "auth") == {"tokens": "running", "login": "waiting"}
    story.attempt_fails("tokens")
    assert story.state.planning.open is None
    assert (story.area("auth").open, story.area("auth").why) == (3, "failures")
    assert planner_state(story.state, 0, AUTH)["reports_since_last_call"] == ["tokens"]
    assert planner_state(story.state, 0, AUTH)["area"] == "auth"


def test_a_finished_area_is_checked_on_the_tip_and_its_synthesis_goes_to_the_parent() -> None:
    story = began()
    plans(story, "auth", "tokens")
    story.landed("tokens")
    answers(story, "auth", finished=True, synthesis="tokens are signed")
    assert story.effects() == (checks_of("auth", 1),)
    assert story.current("auth").commit == story.state.tip
    verified(story, "auth")
    assert story.statuses() == {"auth": "merged", "docs": "running", "tokens": "merged"}
    assert story.state.landing.queue == ()
    assert story.state.commits == 1
    assert story.state.planning.unread.reports == ("auth",)
    assert "tokens are signed" in str(planner_record(story.state))
    assert shown(story, None) == {"auth": "merged", "docs": "running"}


def test_an_area_whose_checks_fail_goes_back_to_the_parent_and_may_be_planned_again() -> None:
    story = began()
    plans(story, "auth", "tokens")
    story.landed("tokens")
    answers(story, "auth", finished=True, synthesis="done")
    story.attempt_fails("auth")
    assert (story.status("auth"), story.state.planning.why) == ("failed", "failures")
    story.planner_answers(retry=[{"id": "auth", "guidance": "sign them"}])
    assert story.current("auth").number == 2
    assert story.area("auth").why == "conclude"
    view = area_state(story.state, AUTH)
    assert (view["attempt"], view["guidance"], view["failures"][0]["class"]) == (2, "sign them", "check")
    assert shown(story, "auth") == {"tokens": "merged"}


def test_a_planner_that_gives_up_on_its_area_hands_it_to_the_parent_with_what_is_open() -> None:
    story = began()
    plans(story, "auth", "tokens")
    story.attempt_fails("tokens")
    for _ in range(5):
        call = story.area("auth").open
        assert call is not None
        lost = f.PlannerFailed(at=story.now, call=call, failure=failure("protocol"), not_before=story.now, area="auth")
        story.happens(lost)
    assert story.status("auth") == "failed"
    assert "its planner failed 5 times" in (story.of("auth").failure or failure()).summary
    assert shown(story, None) == {"auth": "failed", "docs": "waiting", "tokens": "failed"}
    assert set(story.state.planning.reading.reports) == {"auth", "tokens"}
    assert in_charge(story.state, SubtaskId("tokens")) is None


def test_open_subtasks_of_an_area_wait_while_no_planner_is_in_charge_and_are_dropped_with_it() -> None:
    story = began(Policy(workers=1))
    plans(story, "auth", "tokens", "login")
    story.happens(f.AttemptFailed(at=story.now, subtask="auth", number=1, failure=failure("protocol")))
    story.landed("tokens")
    assert story.status("login") == "waiting"
    story.planner_answers(drop=[{"id": "auth", "why": "no"}, {"id": "docs", "why": "no"}])
    assert story.statuses() == {"auth": "dropped", "docs": "dropped", "tokens": "merged", "login": "dropped"}


def test_an_area_has_a_share_of_the_budget_and_ends_when_it_is_spent() -> None:
    story = began(Policy(budget_dollars=9.0), area("ui"))
    assert story.current("auth").allowance == 3.0  # two areas, and one share for everything else
    assert planner_state(story.state, 0, AUTH)["budget"]["dollars_left"] == 3.0
    plans(story, "auth", "tokens", "login")
    story.model_is_called("tokens", dollars=2.0)
    assert area_spend(story.state, AUTH) == 2.0
    assert planner_state(story.state, 0, AUTH)["budget"]["dollars_left"] == 1.0
    story.model_is_called("login", dollars=1.5)
    assert (story.of("auth").attempts[0].failure or failure()).kind == "budget"
    assert story.status("login") == "running"
    assert story.state.planning.why == "failures"


def test_calls_of_an_areas_planner_are_its_spending() -> None:
    story = began(Policy(budget_dollars=9.0))
    call = f.ModelCalled(
        at=0, role="planner", model="m", usage=Usage(input=1), dollars=1.0, seconds=1, call=2, area="auth", turn=3
    )
    story.happens(call)
    assert area_spend(story.state, AUTH) == 1.0
    assert (story.area("auth").turn, story.state.planning.turn) == (3, 0)


def test_a_plan_may_say_what_an_area_costs() -> None:
    story = began(Policy(budget_dollars=9.0), estimate=Estimate(dollars=1.5))
    assert story.current("auth").allowance == 1.5
    assert allowance(began(estimate=Estimate(dollars=2)).state, AUTH) == 2
    assert allowance(began().state, AUTH) is None


def test_a_planner_stays_within_its_area() -> None:
    story = began(None, subtask("other"), touches=("src/auth/**",))
    inside = subtask("tokens", "other").model_copy(update={"touches": ("src/auth/a.py", "src/b.py")})
    assert problems(story, Revision(assessment="", add=(inside,)), "auth") == [
        "add[0].depends_on: 'other' belongs to another area. Depend on the area instead",
        "add[0].touches: src/b.py: outside the area (src/auth/**)",
    ]
    [deeper, empty] = problems(story, Revision(assessment="", add=(area("deep"), subtask("free"))), "auth")
    assert "an area inside an area" in deeper
    assert empty == "add[1].touches: is empty. List the files of 'free' within src/auth/**"
    retry = Revision.model_validate({"assessment": "", "drop": [{"id": "other", "why": "x"}]})
    assert problems(story, retry, "auth") == ["drop[0].id: unknown subtask 'other'"]
    fine = subtask("tokens").model_copy(update={"touches": ("src/auth/**",)})
    assert problems(story, Revision(assessment="", add=(fine,)), "auth") == []


def test_the_parent_can_not_reach_into_an_area_that_is_worked_on() -> None:
    story = began()
    plans(story, "auth", "tokens")
    into = Revision.model_validate({"assessment": "", "add": [subtask("x", "tokens")]})
    assert problems(story, into, None) == [
        "add[0].depends_on: 'tokens' belongs to another area. Depend on the area instead"
    ]
    finish = Revision(assessment="", finished=True, synthesis="done")
    assert "auth" in problems(story, finish, None)[0]


def nested(**fields: object) -> Story:
    """The area `auth`, with the areas `keys` and `sessions` in it, and `keys` planned."""
    story = Story(Policy(area_depth=2, budget_dollars=9.0))
    story.planner_answers(add=(area("auth", **fields), subtask("docs", "auth")))
    assert problems(story, Revision(assessment="", add=(area("keys"),)), "auth") == []
    answers(story, "auth", add=(area("keys"), area("sessions", "keys"), subtask("glue", "sessions")))
    plans(story, "keys", "sign", "verify needs sign")
    return story


def test_an_area_in_an_area_has_a_planner_of_its_own_and_its_synthesis_goes_to_the_area_around_it() -> None:
    story = nested()
    assert shown(story, None) == {"auth": "running", "docs": "waiting"}
    assert shown(story, "auth") == {"keys": "running", "sessions": "waiting", "glue": "waiting"}
    assert shown(story, "keys") == {"sign": "running", "verify": "waiting"}
    assert "an area inside an area" in problems(story, Revision(assessment="", add=(area("deep"),)), "keys")[0]
    story.attempt_fails("sign")
    assert (story.area("keys").why, story.area("auth").open, story.state.planning.open) == (
        "failures",
        None,
        None,
    )
    answers(story, "keys", retry=[{"id": "sign", "guidance": "again"}])
    story.landed("sign")
    story.landed("verify")
    answers(story, "keys", finished=True, synthesis="ed25519")
    verified(story, "keys")
    assert story.statuses()["sessions"] == "running"
    assert story.area("auth").unread.reports == ("keys",)
    assert story.state.planning.unread.reports == ()
    answers(story, "sessions", add=(subtask("cookies"),))
    story.landed("cookies")
    answers(story, "sessions", finished=True, synthesis="cookies")
    verified(story, "sessions")
    story.landed("glue")
    answers(story, "auth", finished=True, synthesis="all of it")
    verified(story, "auth")
    story.landed("docs")
    assert set(story.statuses().values()) == {"merged"}


def test_an_area_in_an_area_has_a_share_of_its_share() -> None:
    story = nested(estimate=Estimate(dollars=3.0))
    assert (story.current("auth").allowance, story.current("keys").allowance) == (3.0, 1.0)
    story.model_is_called("sign", dollars=0.5)
    assert (area_spend(story.state, SubtaskId("keys")), area_spend(story.state, AUTH)) == (0.5, 0.5)
    story.model_is_called("sign", dollars=0.5)
    assert (story.status("keys"), story.status("auth")) == ("failed", "running")
    assert story.area("auth").why == "failures"
    assert shown(story, "auth")["verify"] == "waiting"


def test_what_is_open_in_areas_of_a_dropped_area_is_dropped_with_it() -> None:
    story = nested()
    story.happens(f.AttemptFailed(at=story.now, subtask="auth", number=1, failure=failure("protocol")))
    story.planner_answers(drop=[{"id": "auth", "why": "no"}, {"id": "docs", "why": "no"}])
    assert story.status("verify") == story.status("sessions") == story.status("glue") == "dropped"


def test_areas_are_counted_and_their_depth_is_bounded() -> None:
    story = Story(Policy(area_depth=0))
    assert "an area inside an area" in problems(story, Revision(assessment="", add=(area("auth"),)), None)[0]
    many = Revision(assessment="", add=tuple(area(f"a{n}") for n in range(3)))
    revised = revise_plan(Plan(), many, for_revision(Story().state), PlanContext(max_areas=2))
    assert "3 areas (worker" in str(revised)


def test_an_answer_goes_to_the_planner_who_asked() -> None:
    story = began()
    plans(story, "auth", "tokens")
    story.attempt_fails("tokens")
    answers(story, "auth", ask=[{"about": "tokens", "question": "how?"}])
    assert story.status("tokens") == "escalated"
    assert planner_state(story.state, 0)["questions"] == []
    story.human_answers("q1", "so")
    assert (story.area("auth").why, story.state.planning.open) == ("answers", None)
    assert planner_state(story.state, 0, AUTH)["questions"][0]["answer"] == "so"


def test_a_question_in_an_area_that_no_one_answers_ends_the_run_as_partial() -> None:
    story = began(Policy(answer_wait_s=60))
    plans(story, "auth", "tokens")
    story.attempt_fails("tokens")
    answers(story, "auth", ask=[{"about": "tokens", "question": "how?"}])
    story.time_passes(61)
    assert (story.state.ending, story.state.ending_why) == ("partial", "no one answered q1")


def test_a_planner_that_says_nothing_twice_loses_its_area() -> None:
    story = began()
    answers(story, "auth")
    answers(story, "auth")
    assert (story.of("auth").attempts[0].failure or failure()).summary.startswith(
        "its planner returned no further work"
    )
    assert story.state.planning.why == "failures"


def test_a_cancelled_run_asks_no_planner() -> None:
    story = began()
    story.happens(f.CancelRequested(at=0, by="ada"))
    assert story.state.ending == "cancelled"
    assert story.area("auth").open is None
