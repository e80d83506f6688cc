"""Every page as lines: it fits any width, shows what is true, and lets no hostile text act on the terminal."""

from collections.abc import Callable

import pytest
from rich.cells import cell_len

from dashboards.runs.needs import needs
from dashboards.runs.replay import Replay
from dashboards.runs.run_follower import WatchedRun
from dashboards.terminal.base_screen import header_lines
from dashboards.terminal.lines import Line, Page, PageOptions, bar, fit, matches
from dashboards.terminal.pages.agents import agents_page, nodes_page
from dashboards.terminal.pages.cost import cost_page
from dashboards.terminal.pages.landing import incidents_page, landing_page
from dashboards.terminal.pages.overview import events_page, overview_page, runs_page
from dashboards.terminal.pages.plan import changes, graph, plan_page
from dashboards.terminal.pages.story import check_lines, planner_lines, story_lines
from dashboards.text.formats import sparkline
from fleet.core.plans.limits import Policy
from fleet.core.plans.revision import Revision
from fleet.core.state import facts as f
from fleet.core.state.state import RunState, Version
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.hostile import hostile_story, problems
from tests.dashboards.terminal.test_snapshots import ended_story
from tests.fleet.core.pretend import started
from tests.fleet.core.story import Story, failure, plan_of

PAGES: dict[str, Callable[[WatchedRun, RunState, PageOptions], Page]] = {
    "overview": overview_page,
    "agents": agents_page,
    "plan": plan_page,
    "landing": landing_page,
    "incidents": incidents_page,
    "events": events_page,
    "cost": cost_page,
    "nodes": nodes_page,
    "runs": lambda watched, _, options: runs_page([watched], options),
}
SIZES = (40, 80, 120, 200)


def watch(facts: list[f.Fact], *, now: float = 60.0, alive: bool = True) -> tuple[WatchedRun, RunState]:
    watched = WatchedRun(MemoryFeed(facts, alive=alive), lambda: now)
    watched.look()
    watched.catch_up(10)
    assert watched.state is not None
    return watched, watched.state


def drawn(page: Page, width: int = 120) -> list[str]:
    head = [text(page.head(width))] if page.head else []
    return head + [text(page.draw(index, width)) for index in range(len(page.keys))]


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


@pytest.fixture
def busy() -> Story:
    """Some work, some wait, one failed and asks, one landed."""
    story = Story(
        Policy(workers=8, max_attempts=1),
        plan_of("schema", "store needs schema", "api needs store schema", "docs", "cli"),
    )
    story.landed("schema")
    story.attempt_fails("docs")
    story.happens(f.WorkerStarted(at=1, subtask="cli", number=1))
    story.model_is_called("cli")
    return story


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", SIZES)
def test_a_hostile_run_shows_nothing_a_terminal_could_act_on(name: str, width: int) -> None:
    facts = [fact for _, fact in hostile_story()]
    for end in range(1, len(facts) + 1, 3):
        watched, state = watch(facts[:end])
        page = PAGES[name](watched, state, PageOptions(width=width))
        assert problems(drawn(page, width)) == []
        assert problems(text(line) for line in header_lines(watched, state, width)) == []


def test_the_stories_of_a_hostile_run_are_harmless() -> None:
    watched, state = watch([fact for _, fact in hostile_story()])
    shown = [line for id_ in state.subtasks for line in story_lines(watched, state, id_)] + planner_lines(state)
    for subtask in state.subtasks.values():
        for attempt in subtask.attempts:
            shown += check_lines(watched, attempt)
    assert len(shown) > 30
    assert problems(map(text, shown)) == []


@pytest.mark.parametrize("name", ["agents", "plan", "incidents", "runs"])
@pytest.mark.parametrize("width", SIZES)
def test_the_rows_of_a_table_are_never_wider_than_the_screen(name: str, width: int, busy: Story) -> None:
    watched, state = watch(busy.facts)
    page = PAGES[name](watched, state, PageOptions(width=width))
    tables = [
        page.draw(index, width) for index, key in enumerate(page.keys) if key.startswith(("s:", "i", "run:", "planner"))
    ]
    assert tables
    assert max(cell_len(text(line)) for line in tables) <= width


def test_the_overview_shows_first_what_needs_a_person(busy: Story) -> None:
    watched, state = watch(busy.facts)
    rows = drawn(overview_page(watched, state, PageOptions(width=120, height=30)))
    assert rows[0].startswith("! q1 docs: docs failed 1 time")
    assert "tried 1 time: check" in rows[1]
    assert any("AGENTS 1 of 8" in row for row in rows)
    assert any("landed schema (1 of 5)" in row for row in rows)


def test_an_interrupted_run_needs_a_person_and_its_clock_is_stopped(busy: Story) -> None:
    watched, state = watch(busy.facts, now=1e6, alive=False)
    assert needs(watched)[0].key == "resume"
    assert watched.now == state.last_at


def test_a_run_that_no_process_is_running_has_no_agents(busy: Story) -> None:
    watched, state = watch(busy.facts, alive=False)
    assert agents_page(watched, state, PageOptions()).keys == []
    rows = drawn(overview_page(watched, state, PageOptions(width=120)))
    assert [row for row in rows if "AGENTS" in row or "No agents" in row] == [
        "AGENTS 0 of 8  ",
        "  No agents running. R resumes it.",
    ]
    assert "agents 0/8" in text(header_lines(watched, state, 120)[2])


def test_a_long_name_pushes_no_mark_off_a_narrow_screen() -> None:
    first = started(plan=plan_of("a")).model_copy(
        update={"run": "fleet-add-a-health-endpoint-with-tests-1a2b", "sandbox": "none"}
    )
    watched, state = watch([first])
    replay = Replay(MemoryFeed([first]), lambda: 0.0, 1.0)
    header = text(header_lines(watched, state, 78, replay=replay)[0])
    assert "NO SANDBOX" in header
    assert "REPLAY" in header
    assert cell_len(header) <= 78


def test_the_plan_says_what_holds_up_others_and_which_chain_is_the_longest() -> None:
    story = Story(plan=plan_of("a", "b needs a", "c needs b", "other"))
    watched, state = watch(story.facts)
    _, a, b, c, other, *_ = drawn(plan_page(watched, state, PageOptions(width=120)), 120)
    assert ["2 critical" in a, "1 critical" in b, "critical" in c, "critical" in other] == [True, True, True, False]
    story.landed("a")
    watched, state = watch(story.facts)
    _, a, b, c, *_ = drawn(plan_page(watched, state, PageOptions(width=120)), 120)
    assert ["critical" in a, "1 critical" in b, "critical" in c] == [False, True, True]


def test_agents_are_ordered_and_filtered(busy: Story) -> None:
    watched, state = watch(busy.facts)
    assert (
        agents_page(watched, state, PageOptions(order="subtask")).keys
        == ["planner", "s:cli", "s:store"][-len(agents_page(watched, state, PageOptions()).keys) :]
    )
    assert agents_page(watched, state, PageOptions(needle="STO")).keys == ["s:store"]
    assert agents_page(watched, state, PageOptions(needle="sto bash")).keys == []


def test_the_plan_is_a_graph_that_shows_each_subtask_once(busy: Story) -> None:
    watched, state = watch(busy.facts)
    nodes = [(node.strokes + node.spec.id, node.above) for node in graph(state.plan, {})]
    assert nodes == [("schema", None), ("└ store", "schema"), ("  └ api", "store"), ("docs", None), ("cli", None)]
    rows = drawn(plan_page(watched, state, PageOptions(width=120)))
    assert any("└ api" in row and "schema" in row for row in rows), "its other dependencies are beside it"
    assert any("version 0" in row for row in rows)


def test_pages_that_were_drawn_all_along_are_those_of_a_fresh_start() -> None:
    """What a page keeps from an earlier drawing is never out of date."""
    story = Story(Policy(workers=8))
    story.planner_answers(add=plan_of("auth", "docs", "store").subtasks)
    story.attempt_fails("auth", kind="too_complex")
    parts = plan_of("login", "logout needs login").subtasks
    story.planner_answers(split=[{"id": "auth", "why": "too much", "into": parts}])
    story.landed("docs", "login")
    for facts in (story.facts, [fact for _, fact in hostile_story()]):
        feed = MemoryFeed([])
        kept = WatchedRun(feed, lambda: 60.0)
        kept.look()
        for end in range(1, len(facts) + 1):
            feed.recorded = facts[:end]
            kept.catch_up(10)
            fresh, state = watch(facts[:end])
            assert kept.state is not None
            for page in PAGES.values():
                ours, plain = page(kept, kept.state, PageOptions()), page(fresh, state, PageOptions())
                assert [list(ours.keys), drawn(ours)] == [list(plain.keys), drawn(plain)]


def test_landings_are_counted_in_the_bin_of_their_time() -> None:
    story = Story(Policy(workers=8), plan_of(*"abcdefg"))
    for id_ in story.state.plan.ids:
        story.landed(id_)
        story.now += 17.0
    watched, state = watch(story.facts, now=story.now + 5)
    landed_at = [
        a.ended_at - state.started_at for s in state.subtasks.values() for a in s.attempts if a.ended_at is not None
    ]
    span = story.now + 5 - state.started_at
    for bins in (1, 2, 7, 16):
        assert watched.landings(bins) == [
            sum(int(at / span * bins) == number for at in landed_at) for number in range(bins)
        ]


def test_a_long_chain_needs_no_deep_recursion() -> None:
    chain = plan_of("s0", *(f"s{n} needs s{n - 1}" for n in range(1, 3000)))
    assert len(graph(chain, {})) == 3000


def test_a_version_lists_what_it_changed() -> None:
    before, after = plan_of("a", "b"), plan_of("a", "b needs a", "c")
    first = Version(plan=before, changed=before.subtasks, at=1, by="planner", why="")
    second = Version(plan=after, changed=after.subtasks[1:], at=2, by="planner", why="")
    assert changes(first, second) == "1 added (c), 1 changed (b)"
    assert changes(second, Version(plan=after, changed=(), at=3, by="planner", why="")).startswith("no new subtasks")
    assert changes(None, first) == "2 subtasks"


def test_a_red_batch_is_seen_being_bisected() -> None:
    story = Story(Policy(workers=8), plan_of("a", "b", "c"))
    story.work_is_done("a", "b", "c")
    red = f.CheckRun(criterion="the gate", command="make test", passed=False)
    while not story.state.landing.suspects:
        probe = story.state.landing.open_batches[-1]
        story.happens(f.BatchTested(at=2, number=probe.number, tip=story.state.tip, red=True, checks=(red,)))
    watched, state = watch(story.facts)
    rows = drawn(landing_page(watched, state, PageOptions()))
    assert any("BISECTING" in row for row in rows)
    assert any(f"{len(state.landing.suspects)} suspects:" in row for row in rows)
    assert any("red; suspects:" in row for row in rows)


def test_the_overview_leaves_out_what_always_happens(busy: Story) -> None:
    watched, state = watch(busy.facts)
    rows = "\n".join(drawn(overview_page(watched, state, PageOptions(width=120, height=60))))
    assert "store started" not in rows
    assert "store started" in "\n".join(drawn(events_page(watched, state, PageOptions())))


def test_a_planner_of_an_area_is_an_agent_and_its_subtasks_are_below_it() -> None:
    story = Story(Policy(workers=8))
    story.planner_answers(add=(plan_of("auth", worker="planner").subtasks[0], plan_of("docs").subtasks[0]))
    call = story.state.areas["auth"].open
    revision = Revision(assessment="two parts", add=plan_of("login", "logout needs login").subtasks)
    story.happens(f.PlanRevised(at=1, call=call, by="planner", revision=revision, area="auth"))
    watched, state = watch(story.facts)
    assert any("auth (area)" in row for row in drawn(agents_page(watched, state, PageOptions())))
    nodes = [node.strokes + node.spec.id for node in graph(state.plan, {"login": "auth", "logout": "auth"})]
    assert nodes == ["auth", "├ login", "└ logout", "docs"]
    assert "0/3" in text(header_lines(watched, state, 120)[2]), "an area is not one more thing to land"


def test_incidents_that_are_open_come_first() -> None:
    story = Story(Policy(workers=8), plan_of("a", "b"))
    story.attempt_fails("a", kind="transient")
    story.time_passes_to_the_next_wake()
    story.landed("a")
    story.attempt_fails("b")
    watched, state = watch(story.facts)
    _, by_class, by_remedy, *rows = drawn(incidents_page(watched, state, PageOptions()))
    assert by_class == "recovered by class    transient 100% (1 of 1)"
    assert by_remedy == "recovered by remedy   retry 100% (1 of 1)"
    rows = ["", *rows]
    assert [word in rows[1] for word in ("open", " b ")] == [True, True]
    assert [word in rows[2] for word in ("recovered", "retry")] == [True, True]


def test_speed_is_counted_over_the_time_it_was_worked_on(busy: Story) -> None:
    watched, _ = watch(busy.facts, now=1800.0)
    assert watched.commits_an_hour() == pytest.approx(2.0)
    assert sum(watched.landings(8)) == 1


def test_a_batch_sent_back_names_who() -> None:
    story = Story(Policy(workers=8), plan_of("a"))
    story.work_is_done("a")
    probe = story.state.landing.open_batches[0]
    out = f.Ejected(subtask="a", attempt=1, failure=failure("conflict", "two sides"))
    story.happens(f.BatchTested(at=2, number=probe.number, tip=story.state.tip, ejected=(out,)))
    watched, state = watch(story.facts)
    assert any("sent back a (two sides)" in row for row in drawn(landing_page(watched, state, PageOptions())))


@pytest.mark.parametrize(
    ("given", "width", "wanted"), [("abc", 5, "abc  "), ("abcdef", 4, "abc…"), ("日本語", 4, "日 …"), ("x", 0, "")]
)
def test_text_takes_exactly_its_width(given: str, width: int, wanted: str) -> None:
    assert fit(given, width) == wanted
    assert cell_len(fit(given, width)) == width


def test_small_pictures() -> None:
    assert bar(1, 2, 8) == "████░░░░"
    assert bar(0, 0, 4) == "░░░░"
    assert len(bar(99, 100, 10)) == 10
    assert sparkline([0, 1, 7]) == "▁▂█"
    assert sparkline([]) == sparkline([0]) == ""
    assert matches("b A", "aa", "bb")
    assert not matches("c", "aa", "bb")


def test_a_refused_run_shows_the_cause_and_what_to_do() -> None:
    story = Story(Policy(check_base=True))
    output = "bash: line 1: cargo: command not found"
    red = f.CheckRun(criterion="gate", command="cargo test", passed=False, exit_code=127, causes=(output,))
    story.happens(f.BaseChecked(at=0, base="base", checks=(red,)))
    run, state = watch(story.facts)
    page = "\n".join(drawn(overview_page(run, state, PageOptions(width=120, height=60))))
    assert "ENDED ✘ refused" in page
    assert output in page
    assert "tool_chains" in page


def test_a_batch_is_part_of_the_story_of_each_of_its_subtasks(busy: Story) -> None:
    watched, _ = watch(busy.facts)
    assert any("landed schema" in event.text for event in watched.events_about("schema"))


def test_an_event_of_several_lines_is_one_line_of_the_overview() -> None:
    story = Story(Policy(workers=2))
    story.planner_answers(
        add=plan_of("a", "b").subtasks, ask=[{"question": "Which one?", "options": []}], assessment="so it is"
    )
    watched, state = watch(story.facts)
    rows = drawn(overview_page(watched, state, PageOptions(width=120, height=40)))
    first = next(row for row in rows if "plan version 1" in row)
    assert "(+1 line: press 6)" in first
    assert not any("QUESTION" in row for row in rows)
    assert any("QUESTION" in row for row in drawn(events_page(watched, state, PageOptions())))


def test_every_recovery_rate_is_shown_the_lowest_first() -> None:
    kinds: tuple[f.FailureKind, ...] = ("check", "transient", "bounds", "too_complex", "empty", "ambiguous")
    story = Story(Policy(max_attempts=9), plan_of(*(f"s{number}" for number in range(len(kinds)))))
    for number, kind in enumerate(kinds):
        story.attempt_fails(f"s{number}", kind)
    story.happens(f.CancelRequested(at=story.now, by="ada"))
    watched, state = watch(story.facts)
    text_ = "\n".join(drawn(incidents_page(watched, state, PageOptions(width=77))))
    assert all(kind in text_.partition("✘")[0] for kind in kinds)


def test_costs_say_who_spends_and_what_failed(busy: Story) -> None:
    busy.model_is_called("store", 0.25)
    watched, state = watch(busy.facts)
    rows = drawn(cost_page(watched, state, PageOptions(width=100)))
    assert any(row.split()[0] == "workers" and "100%" in row for row in rows if row.strip())
    assert any("$0.2500  store" in row for row in rows)


def test_an_ended_run_shows_its_figures_and_how_to_take_the_result() -> None:
    watched, state = watch(ended_story().facts, alive=False)
    rows = drawn(overview_page(watched, state, PageOptions(width=100, height=40)))
    assert rows[0].startswith("ENDED ✔ landed")
    assert any("fleet merge r" in row for row in rows)
    assert any("recovered without a human  100% (1 of 1)" in row for row in rows)
    assert not any(row.startswith("AGENTS") for row in rows)
