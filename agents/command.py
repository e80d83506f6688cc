"""A worker that is a program: another agent, a script, a step of a deployment. Its report is a file, or how it ended.

It runs in the box like every command. What it is told lies in a folder beside the worktree that the box shows it.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory

from agents.briefs import as_document, first_message
from agents.commandline import NoValue, shell_line, values_of
from agents.prompting import render
from agents.settings import WorkerSettings
from agents.text import capped, hidden, well_formed
from agents.tools.report import read_report
from agents.tools.tool import BadInput
from agents.transcripts import Transcripts
from fleet.core.facts import Failure, Report
from fleet.ports import CommandResult, Desk, DeskError, Meter, WorkerBrief

LONGEST_REPORT = 24_000  # bytes of a report file; it has to fit into the part of an output that is never cut
_EVIDENCE, _SUMMARY = 4_000, 600  # characters of an output


@dataclass(frozen=True, slots=True)
class Handed:
    """The files that a program is handed, in a folder of their own."""

    folder: Path

    @property
    def subtask(self) -> Path:
        return self.folder / "subtask.json"

    @property
    def prompt(self) -> Path:
        return self.folder / "prompt.md"


@contextmanager
def handed(brief: WorkerBrief, *, besides: str) -> Iterator[Handed]:
    """The brief as files, for as long as the block lasts. `besides` ends the prompt."""
    with TemporaryDirectory(prefix="fleet-") as folder:
        files = Handed(Path(folder))
        told = "\n\n".join((*first_message(brief), besides.strip()))
        files.subtask.write_text(json.dumps(as_document(brief), ensure_ascii=True, indent=1) + "\n", encoding="utf-8")
        files.prompt.write_text(well_formed(told) + "\n", encoding="utf-8")
        yield files


@dataclass(frozen=True, slots=True)
class CommandWorker:
    """Runs one command line an attempt."""

    own: WorkerSettings
    transcripts: Transcripts

    @property
    def model(self) -> str | None:
        return self.own.models[0] if self.own.models else None

    async def run(self, brief: WorkerBrief, desk: Desk, meter: Meter) -> Report | Failure:
        """Run it, and read what came of it."""
        if not meter.may_call():
            return Failure(kind="spent", summary="the budget allows no further work")
        own = self.own
        besides = f"{own.prompt.strip()}\n\n{render('command')}"
        with handed(brief, besides=besides) as files:
            paths = {"subtask": str(files.subtask), "prompt": str(files.prompt)}
            try:
                line = shell_line(own.command, values_of(brief, model=brief.model or self.model, **paths))
            except NoValue as none:
                return Failure(kind="other", summary=str(none))
            told = {"FLEET_SUBTASK": paths["subtask"], "FLEET_PROMPT": paths["prompt"]}
            extras = replace(
                own.extras,
                read_only=(*own.extras.read_only, str(files.folder)),
                environment={**own.extras.environment, **told},
            )
            mark = token_hex(8)
            try:
                done = await desk.run(_script(line, mark), timeout_s=own.time_s, extras=extras)
            except DeskError as error:
                return Failure(kind="tool", summary=str(error))
        done = replace(done, output=well_formed(hidden(done.output, own.secrets)))
        output, _, report = done.output.rpartition(f"\n{mark}\n")
        if not output and f"{mark}\n" not in done.output:
            output, report = done.output, ""
        self._tell(brief, line, done)
        return outcome(replace(done, output=output.strip("\n")), report)

    def _tell(self, brief: WorkerBrief, line: str, done: CommandResult) -> None:
        with self.transcripts.open(brief.subtask.id, brief.attempt) as transcript:
            transcript.write(
                "command",
                line=line,
                exit_code=done.exit_code,
                timed_out=done.timed_out,
                seconds=done.seconds,
                output=done.output,
            )


def _script(line: str, mark: str) -> str:
    """The command, and after it what it wrote into its report. `/tmp` is the box's own and goes with it."""
    return (
        'FLEET_REPORT="${TMPDIR:-/tmp}/fleet-report.json"; export FLEET_REPORT; rm -f -- "$FLEET_REPORT"\n'
        f"{line}\n"
        f"code=$?; printf '\\n%s\\n' {mark}\n"
        f'if [ -f "$FLEET_REPORT" ]; then head -c {LONGEST_REPORT + 1} -- "$FLEET_REPORT"; fi\n'
        "exit $code\n"
    )


def outcome(done: CommandResult, report: str) -> Report | Failure:
    """What a program's end means: its report where it wrote one, else its exit code and the end of its output."""
    evidence = capped(done.output, _EVIDENCE)
    if done.timed_out:
        return Failure(
            kind="budget", summary=f"the command had not finished after {done.seconds:.0f} s", evidence=evidence
        )
    if report.strip():
        return _reported(report, done.exit_code, evidence)
    last = done.output[-_SUMMARY:].strip() or "it printed nothing"
    if done.exit_code == 0:
        return Report(status="done", summary=last)
    return Report(
        status="failed",
        summary=f"the command ended with exit code {done.exit_code}",
        error_kind="environment" if done.exit_code in {126, 127} else "other",  # what a shell can't start
        error_message=evidence or last,
    )


def _reported(text: str, exit_code: int, evidence: str) -> Report | Failure:
    try:
        report = _parsed(text)
    except (ValueError, RecursionError, BadInput) as error:
        why = f"{error}\n\n{capped(text, _EVIDENCE)}"
        return Failure(kind="protocol", summary="the command's report is none", evidence=why)
    if exit_code != 0 and report.status == "done":
        said = f"the command reported done and ended with exit code {exit_code}"
        return Failure(kind="tool", summary=said, evidence=f"{report.summary}\n\n{evidence}")
    return report


def _parsed(text: str) -> Report:
    if len(text.encode("utf-8", "replace")) > LONGEST_REPORT:
        raise BadInput(f"it is longer than {LONGEST_REPORT} bytes")
    raw = json.loads(text)
    if not isinstance(raw, dict):
        raise BadInput("it is no JSON object")
    return read_report(raw)
