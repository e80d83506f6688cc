"""A worker that is a program: another agent, a script, a step of a deployment. It reports in a file or by its end.

It runs in the box like every command; its brief lies in a folder beside the worktree, which the box shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Any

from agents.base.text import capped, render
from agents.base.transcripts import Transcripts
from agents.conversation.settings import WorkerSettings
from agents.tools.report import read_report
from agents.tools.tool import ToolInputError
from agents.workers.briefs import brief_files
from agents.workers.command_line import EVIDENCE, MissingValueError, run_program, shell_line, values_of
from fleet.core.base.json_text import parse_json
from fleet.core.state.facts import Failure, Report
from fleet.ports.agents import CommandResult, Meter, WorkerBrief, Workspace

LONGEST_REPORT = 24_000  # bytes of a report file; it has to fit into the part of an output that is never cut
_SUMMARY = 600  # characters of an output
_CAN_NOT_START = frozenset({126, 127})  # a shell's exit codes


@dataclass(frozen=True, slots=True)
class CommandWorker:
    """Runs one command line per attempt."""

    settings: WorkerSettings
    transcripts: Transcripts

    @property
    def model(self) -> str | None:
        return self.settings.models[0] if self.settings.models else None

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """Run it, and read its report."""
        if not meter.may_call():
            return Failure(kind="spent", summary="the budget allows no further work")
        settings, marker = self.settings, token_hex(8)
        told = await brief.operator.read()
        with brief_files(brief, told, ending=f"{settings.prompt.strip()}\n\n{render('command')}") as files:
            paths = {"subtask": str(files.subtask), "prompt": str(files.prompt)}
            try:
                line = shell_line(settings.command, values_of(brief, model=brief.model or self.model, **paths))
            except MissingValueError as error:
                return Failure(kind="other", summary=str(error))
            result = await run_program(
                _script(line, marker),
                settings,
                workspace,
                read_only=(str(files.folder),),
                environment={"FLEET_SUBTASK": paths["subtask"], "FLEET_PROMPT": paths["prompt"]},
            )
        if isinstance(result, Failure):
            return result
        output, separator, report = f"\n{result.output}".rpartition(f"\n{marker}\n")
        if not separator:
            output, report = report, ""
        output = output.strip("\n")
        with self.transcripts.open(brief.subtask.id, brief.attempt) as transcript:
            fields = {"timed_out": result.timed_out, "seconds": result.seconds, "output": output, "report": report}
            transcript.write("command", line=line, exit_code=result.exit_code, **fields)
        return outcome(replace(result, output=output), report)


def _script(line: str, marker: str) -> str:
    """The command, then its report. `/tmp` belongs to the box and disappears with it."""
    return (
        'FLEET_REPORT="${TMPDIR:-/tmp}/fleet-report.json"; export FLEET_REPORT; rm -f -- "$FLEET_REPORT"\n'
        f"{line}\n"
        f"code=$?; printf '\\n%s\\n' {marker}\n"
        f'if [ -f "$FLEET_REPORT" ]; then head -c {LONGEST_REPORT + 1} -- "$FLEET_REPORT"; fi\n'
        "exit $code\n"
    )


def outcome(result: CommandResult, report: str) -> Report | Failure:
    """The program's report if it wrote one; otherwise its exit code and the end of its output."""
    evidence = capped(result.output, EVIDENCE)
    if result.timed_out:
        summary = f"the command had not finished after {result.seconds:.0f} s"
        return Failure(kind="budget", summary=summary, evidence=evidence)
    if report.strip():
        return _read(report, result.exit_code, evidence)
    last = result.output[-_SUMMARY:].strip() or "it printed nothing"
    if result.exit_code == 0:
        return Report(status="done", summary=last)
    return Report(
        status="failed",
        summary=f"the command ended with exit code {result.exit_code}",
        error_kind="environment" if result.exit_code in _CAN_NOT_START else "other",
        error_message=evidence or last,
    )


def _read(text: str, exit_code: int, evidence: str) -> Report | Failure:
    """The report that the program wrote, unless its exit code contradicts it."""
    try:
        report = read_report(_parsed(text))
    except (ValueError, ToolInputError) as error:
        why = f"{error}\n\n{capped(text, EVIDENCE)}"
        return Failure(kind="protocol", summary="the command's report is invalid", evidence=why)
    if exit_code != 0 and report.status == "done":
        summary = f"the command reported done but ended with exit code {exit_code}"
        return Failure(kind="tool", summary=summary, evidence=f"{report.summary}\n\n{evidence}")
    return report


def _parsed(text: str) -> Mapping[str, Any]:
    if len(text.encode("utf-8", "replace")) > LONGEST_REPORT:
        raise ToolInputError(f"it is longer than {LONGEST_REPORT} bytes")
    document = parse_json(text)
    if not isinstance(document, dict):
        raise ToolInputError("it is not a JSON object")
    return document
