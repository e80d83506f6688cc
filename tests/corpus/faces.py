"""Everything that the program shows of a run, by the command line where there is one: what is inside may move."""

import asyncio
import io
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from textual.pilot import Pilot

from dashboards.terminal import main_screen, subtask_screen
from dashboards.terminal.app import FleetApp
from fleet.cli.entry import run_program
from fleet.cli.terminal_data import library_of
from fleet.core.facts.facts import FACT
from fleet.core.history.evolve import evolve
from fleet.core.policy.planner_view import planner_state
from fleet.core.state.state import RunState
from tests.corpus.state_dir import FOLDER, SHOWN_AS, Recorded, opened
from tests.dashboards.terminal.pilot import rows

BUG = 70
SIZES = ((80, 24), (140, 40))
PATIENCE_S = 300.0
NOTIFIED = """
[notify.channels.all]
kind = "command"
command = '''sh -c "cat >> {file}; echo >> {file}"'''
"""
NO_METRIC = re.compile(r" 0\.0$|^# |^fleet_(state_free_bytes|journal_bytes|journal_lag)")
"""Lines of no event, and those about the disk and the speed of this machine."""
STYLE = re.compile(r"(?<=<style>).*?(?=</style>)", re.DOTALL)
STYLED = "busy"  # the run whose report is recorded with its style; it is the same in all
Shown = Iterator[tuple[str, str]]
"""The parts of a face: what was asked for, and what was shown."""


class Output(io.TextIOWrapper):
    """What is printed, as bytes or as text."""

    def __init__(self) -> None:
        self.written = io.BytesIO()
        super().__init__(self.written, encoding="utf-8", write_through=True)

    @property
    def text(self) -> str:
        return self.written.getvalue().decode()


def program(*arguments: str, out: Output | None = None) -> tuple[int, str, str]:
    """Run the program here; return its exit code and what it prints."""
    out, errors = out or Output(), Output()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.setattr(sys, "stdin", io.StringIO())
        with pytest.raises(SystemExit) as ended:
            run_program(arguments)
    code = int(str(ended.value.code or 0))
    assert code != BUG, errors.text
    return code, out.text, errors.text


def said(*arguments: str) -> tuple[str, str]:
    """A command line as a person types it, and all that it prints."""
    code, out, errors = program(*arguments)
    ended = f" → exit code {code}" if code else ""
    return f"fleet {' '.join(arguments)}{ended}", out + "".join(f"stderr: {line}\n" for line in errors.splitlines())


# ---- the faces ------------------------------------------------------------------------------------------------------


def looked_at(run: Recorded) -> Iterator[Sequence[str]]:
    """The command lines that show a run; all of them take --json."""
    name = run.name
    yield "status", name
    yield "runs", "--all"
    yield "show", name
    for subtask in run.subtasks[:3]:
        yield "show", subtask, "--run", name
    for number in range(1, max(3, min(9, 1 + len(run.of("attempt_failed"))))):
        yield "show", name, "--incident", str(number)
    yield "show", "--run", name, "--versions", f"0..{max(1, len(run.of('plan_revised')))}"
    yield "limits", name
    yield "plans", "graph", name
    yield "plans", "check", name
    yield "plans", "show", name
    yield "logs", "planner", "--run", name
    for subtask in run.subtasks[:1]:
        yield "logs", subtask, "--run", name


def as_json(run: Recorded) -> Shown:
    with opened(run):
        for words in looked_at(run):
            yield said(*words, "--json")


def as_text(run: Recorded) -> Shown:
    with opened(run):
        for words in looked_at(run):
            yield said(*words)
        yield said("status", run.name, "--color", "always")
        yield said("plans", "diff", run.name, run.name)
        for kind in ("mmd", "dot"):
            program("plans", "graph", run.name, "-o", f"plan.{kind}")
            yield (
                f"plan.{kind}",
                Path(f"plan.{kind}").read_text(encoding="utf-8") if Path(f"plan.{kind}").exists() else "",
            )


def events(run: Recorded) -> Shown:
    """A run that is at work is never over, so that here its engine has died."""
    with opened(run, alive=False):
        yield said("watch", run.name, "--plain")


def facts(run: Recorded) -> Shown:
    with opened(run, alive=False):
        yield said("watch", run.name, "--json")


def report(run: Recorded) -> Shown:
    with opened(run):
        for kind in ("--markdown", "--json"):
            yield said("report", run.name, kind)
        title, text = said("report", run.name, "--html")
        yield title, _in_lines(text if run.name == STYLED else STYLE.sub("", text))


def trace(run: Recorded) -> Shown:
    with opened(run):
        yield said("trace", run.name)
        title, text = said("trace", run.name, "--json")
        yield title, text.replace("}, {", "},\n{")


def metrics(*runs: Recorded) -> Shown:
    with opened(*runs):
        title, text = said("metrics", "--once")
        yield title, "".join(line for line in text.splitlines(keepends=True) if not NO_METRIC.search(line))


def planner(run: Recorded) -> Shown:
    """What the planner is told of the run. It is shown to nobody else, so that no command line prints it."""
    state: RunState | None = None
    for line in run.lines[1:]:
        state = evolve(state, FACT.validate_json(line))
    assert state is not None
    yield "planner", json.dumps(planner_state(state, run.now), indent=1, ensure_ascii=False, default=str) + "\n"


def notifications(run: Recorded) -> Shown:
    with opened(run) as folder:
        (folder / "state" / "runs" / run.name / "notifications.sqlite").touch()
        config, sent = folder / "notify.toml", folder / "sent"
        config.write_text(NOTIFIED.format(file=sent), encoding="utf-8")
        sent.touch()
        yield said("notify", "watch", "--once", "--config", str(config))
        yield "what was sent", re.sub(r"\b[0-9a-f]{32}\b", "KEY", sent.read_text(encoding="utf-8"))
        title, listed = said("notify", "list", "--json")
        yield title, re.sub(r"\b[0-9a-f]{32}\b", "KEY", listed)
        yield said("notify", "list")


def decisions(run: Recorded) -> Shown:
    """What the program answers to a person who decides something, and how the run is after it."""
    name = run.name
    questions = [f"q{number}" for number, _ in enumerate(run.of("question_asked"), 1)]
    subtask = (*run.subtasks, "none")[0]
    wanted: list[Sequence[str]] = [
        ("approve", name, "--yes"),
        ("reject", name, "--reason", "too wide"),
        *(("answer", question, "19 %", "--run", name) for question in questions[:2]),
        ("tell", subtask, "use UTC", "--run", name),
        ("retry", subtask, "--guidance", "once more", "--run", name),
        ("limits", name, "--workers", "3", "--budget", "7"),
        ("pause", name),
        ("cancel", name),
        ("limits", name),
    ]
    for more in ((), ("--json",)):
        with opened(run):
            for words in wanted:
                yield said(*words, *more)


# ---- the screen -----------------------------------------------------------------------------------------------------


def terminal(run: Recorded) -> Shown:
    with opened(run) as folder:
        for width, height in SIZES:
            yield from asyncio.run(_screens(folder / "state", run, width, height))


async def _screens(state_dir: Path, run: Recorded, width: int, height: int) -> list[tuple[str, str]]:
    shown = list[tuple[str, str]]()
    with library_of(state_dir) as library:
        app = FleetApp(library, run.name, user="ada", clock=time.time)
        async with app.run_test(size=(width, height)) as pilot:

            async def show(title: str, *keys: str) -> None:
                await pilot.press(*keys)
                shown.append((f"{title} ({width}x{height})", await _settled(app, pilot)))

            is_small = width == SIZES[0][0]
            for page in (main_screen.RUNS, *main_screen.PAGES) if is_small else (1, 3, 4, 5):
                await show(f"page {page}", str(page))
            if run.of("attempt_failed"):
                await show("an incident", "5", "enter")
                await pilot.press("escape")
            for title, key, is_there in _dialogs(run) if is_small else ():
                if is_there:
                    await show(title, key)
                    await pilot.press("escape")
            for subtask in run.subtasks[:1]:
                app.open_subtask(subtask)
                for page in subtask_screen.TITLES:
                    await show(f"subtask {subtask}, page {page}", str(page))
            if is_small:
                app.open_subtask("planner")
                await show("the planner")
                for subtask in [failed["subtask"] for failed in run.of("attempt_failed")][-1:]:
                    app.open_subtask(subtask)
                    await show(f"subtask {subtask}, which failed")
                    await show("its checks", "4")
    return shown


def _dialogs(run: Recorded) -> Iterator[tuple[str, str, bool]]:
    yield "the help", "question_mark", run.name == STYLED
    yield "an answer", "a", len(run.of("question_asked")) > len(run.of("question_answered"))
    yield "an approval", "A", run.facts[0]["policy"]["review"] and not run.of("plan_approved")


async def _settled(app: FleetApp, pilot: Pilot[None]) -> str:
    """The screen as text, once all is read and it changes no more."""
    await app.workers.wait_for_complete()
    before, text = "", None
    while text != before or not app.watched.loaded:
        await pilot.pause()
        before, text = text or "", "".join(f"{row}\n" for row in rows(app))
    return before


# ---- pages ----------------------------------------------------------------------------------------------------------


def web(*runs: Recorded) -> Shown:
    """The pages that `fleet web` serves, fetched by a browser without a script."""
    pages = ["/", "/inbox"]
    for run in runs if len(runs) == 1 else ():
        here = f"/runs/{run.name}"
        pages = [here, *pages, f"{here}/subtasks", f"{here}/plan", f"{here}/replay", f"{here}/replay?at=9"]
        pages += [f"{here}/subtasks/{subtask}" for subtask in run.subtasks[:2]]
    with opened(*runs):
        yield from ((page, _in_lines(text)) for page, text in _served(pages, [f"/runs/{run.name}" for run in runs]))


def _in_lines(page: str) -> str:
    """A page in lines that can be compared."""
    return page.replace("><", ">\n<")


def _served(pages: Sequence[str], once_listed: Sequence[str]) -> list[tuple[str, str]]:
    """These pages once the board lists these runs. The program has the main thread, where it waits for its signal."""
    out, found, failures = Output(), list[tuple[str, str]](), list[Exception]()

    def browse() -> None:
        try:
            link = _link(out)
            address, _, token = link.partition("/sign-in")
            cookie = _fetch(f"{address}/sign-in{token}", {})[0]
            until, board = time.monotonic() + PATIENCE_S, ""
            while not all(link in board for link in once_listed) and time.monotonic() < until:
                board = _fetch(f"{address}/", {"Cookie": cookie})[1]
            found.extend((page, _fetch(f"{address}{page}", {"Cookie": cookie})[1]) for page in pages)
        except Exception as error:  # noqa: BLE001 - it belongs to the thread that waits
            failures.append(error)
        finally:
            if not is_over.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    is_over = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: None)  # until the program waits for it
    browser = threading.Thread(target=browse)
    browser.start()
    try:
        program("web", "--json", out=out)
    finally:
        is_over.set()
        browser.join(PATIENCE_S)
        signal.signal(signal.SIGTERM, before)
    if failures:
        raise failures[0]
    return found


def _link(out: Output) -> str:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if (text := out.text).rstrip().endswith("}"):
            return str(json.loads(text)["link"])
        time.sleep(0.01)
    raise TimeoutError("no pages were served")


def _fetch(url: str, headers: Mapping[str, str]) -> tuple[str, str]:
    """The cookie that a page sets, and its text."""
    try:
        with urlopen(Request(url, headers=dict(headers)), timeout=PATIENCE_S) as answer:  # noqa: S310 - ours
            return str(answer.headers.get("Set-Cookie", "")).partition(";")[0], answer.read().decode()
    except HTTPError as error:
        return "", f"HTTP {error.code}\n{error.read().decode()}"


# ---- several runs ---------------------------------------------------------------------------------------------------


def together(runs: Sequence[Recorded]) -> Shown:
    """What is about all runs of a state directory."""
    with opened(*runs):
        for words in (("runs", "--all"), ("runs", "--all", "--state", "running"), ("notify", "list")):
            yield said(*words)
            yield said(*words, "--json")
    yield from metrics(*runs)
    yield from web(*runs)


# ---- all of them ----------------------------------------------------------------------------------------------------

FACES: Mapping[str, Callable[[Recorded], Shown]] = {
    "json": as_json,
    "text": as_text,
    "events": events,
    "facts": facts,
    "report": report,
    "trace": trace,
    "metrics": metrics,
    "planner": planner,
    "notifications": notifications,
    "decisions": decisions,
    "terminal": terminal,
    "web": web,
}
EVERYWHERE = frozenset({"json", "text", "events", "planner"})
"""The faces that each run is recorded with. A run names the others in the first line of its journal."""


def faces_of(run: Recorded) -> list[str]:
    return [face for face in FACES if face in {*EVERYWHERE, *run.about["faces"]}]


def printed(parts: Shown) -> str:
    """Each part below its title, and nothing in it that a terminal acts on."""
    return "".join(_visible(f"===== {title}\n{text}\n") for title, text in parts)


def _visible(text: str) -> str:
    text = FOLDER.sub(SHOWN_AS, text)
    return "".join(c if c == "\n" or c.isprintable() else f"\\u{{{ord(c):x}}}" for c in text)
