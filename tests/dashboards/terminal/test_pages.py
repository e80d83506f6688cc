"""Every page as lines: it fits any width and lets no text act on the terminal; tests/corpus says what it shows."""

from collections.abc import Callable

import pytest
from rich.cells import cell_len

from dashboards.state_history import RunReplay
from dashboards.terminal.agents_page import agents_page, nodes_page
from dashboards.terminal.base_screen import header_lines
from dashboards.terminal.cost_page import cost_page
from dashboards.terminal.landing_page import incidents_page, landing_page
from dashboards.terminal.lines import Line, Page, PageOptions, bar, events_page, fit, matches
from dashboards.terminal.overview_page import overview_page, runs_page
from dashboards.terminal.plan_page import drawn as drawn_graph
from dashboards.terminal.plan_page import plan_page
from dashboards.terminal.subtask_screen import check_lines, planner_lines, story_lines
from dashboards.text.event_text import events_of
from dashboards.text.formats import sparkline
from fleet.core.facts import facts as f
from fleet.core.plans.limits import MachineOffer, Machines, Policy
from fleet.read.follow import FollowedRun
from fleet.read.plan_graph import graph
from fleet.read.run import RunSnapshot
from tests.dashboards.feeds import MemoryFeed
from tests.dashboards.hostile import hostile_story, problems
from tests.dashboards.stories import nodes_story
from tests.fleet.core.pretend import started
from tests.fleet.core.story import Story, plan_of

PAGES: dict[str, Callable[[FollowedRun, RunSnapshot, PageOptions], Page]] = {
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


def watch(facts: list[f.Fact], *, now: float = 60.0, alive: bool = True) -> tuple[FollowedRun, RunSnapshot]:
    watched = FollowedRun(MemoryFeed(facts, alive=alive), lambda: now, tell=events_of)
    watched.look()
    watched.catch_up(10)
    snapshot = watched.snapshot
    assert snapshot is not None
    return watched, snapshot


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
        watched, snapshot = watch(facts[:end])
        page = PAGES[name](watched, snapshot, PageOptions(width=width))
        assert problems(drawn(page, width)) == []
        assert problems(text(line) for line in header_lines(watched, snapshot, width)) == []


def test_the_stories_of_a_hostile_run_are_harmless() -> None:
    watched, snapshot = watch([fact for _, fact in hostile_story()])
    shown = [line for id_ in snapshot.subtask_ids() for line in story_lines(watched, snapshot, id_)] + planner_lines(
        snapshot
    )
    for subtask in snapshot.state.subtasks.values():
        for attempt in subtask.attempts:
            shown += check_lines(watched, attempt.checks)
    assert len(shown) > 30
    assert problems(map(text, shown)) == []


@pytest.mark.parametrize("name", ["agents", "plan", "incidents", "runs"])
@pytest.mark.parametrize("width", SIZES)
def test_the_rows_of_a_table_are_never_wider_than_the_screen(name: str, width: int, busy: Story) -> None:
    watched, snapshot = watch(busy.facts)
    page = PAGES[name](watched, snapshot, PageOptions(width=width))
    tables = [
        page.draw(index, width) for index, key in enumerate(page.keys) if key.startswith(("s:", "i", "run:", "planner"))
    ]
    assert tables
    assert max(cell_len(text(line)) for line in tables) <= width


def test_a_long_name_pushes_no_mark_off_a_narrow_screen() -> None:
    first = started(plan=plan_of("a")).model_copy(
        update={"run": "fleet-add-a-health-endpoint-with-tests-1a2b", "sandbox": "none"}
    )
    watched, snapshot = watch([first])
    replay = RunReplay(MemoryFeed([first]), lambda: 0.0, 1.0)
    header = text(header_lines(watched, snapshot, 78, replay=replay)[0])
    assert "NO SANDBOX" in header
    assert "REPLAY" in header
    assert cell_len(header) <= 78


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
        kept = FollowedRun(feed, lambda: 60.0, tell=events_of)
        kept.look()
        for end in range(1, len(facts) + 1):
            feed.recorded = facts[:end]
            kept.catch_up(10)
            fresh, snapshot = watch(facts[:end])
            seen = kept.snapshot
            assert seen is not None
            for page in PAGES.values():
                ours, plain = page(kept, seen, PageOptions()), page(fresh, snapshot, PageOptions())
                assert [list(ours.keys), drawn(ours)] == [list(plain.keys), drawn(plain)]


def test_landings_are_counted_in_the_bin_of_their_time() -> None:
    story = Story(Policy(workers=8), plan_of(*"abcdefg"))
    for id_ in story.state.plan.ids:
        story.landed(id_)
        story.now += 17.0
    watched, snapshot = watch(story.facts, now=story.now + 5)
    state = snapshot.state
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
    nodes = graph(chain, {})
    assert len(list(drawn_graph(nodes))) == 3000


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


@pytest.mark.parametrize("width", SIZES)
def test_the_rows_of_nodes_are_never_wider_than_the_screen(width: int) -> None:
    watched, snapshot = watch(nodes_story().facts)
    page = nodes_page(watched, snapshot, PageOptions(width=width))
    assert list(page.keys) == ["n:big", "n:gone", "n:idle", "", "", "s:b"]
    assert max(map(cell_len, drawn(page, width)[:4])) <= width


def test_an_overview_without_agents_says_what_the_next_subtask_waits_for() -> None:
    offers = {"": MachineOffer(lands=True), "big": MachineOffer(labels=("gpu",), lands=True)}
    story = Story(Policy(machines=Machines(offers=offers)), plan_of("a", "b", labels=("gpu",)))
    watched, snapshot = watch(story.facts)
    rows = drawn(overview_page(watched, snapshot, PageOptions(width=220, height=30)))
    said = "a waits for a machine with the label gpu: node big is unavailable: not connected yet (and 1 more: press 8)."
    assert any(said in row for row in rows)
