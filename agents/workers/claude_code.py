"""A worker that is Claude Code: `claude -p` in a box of its own, without a key and with no way out but our relay.

Its calls to the model go through `relay.py`, where they are counted and bounded. `session.py` speaks with it: the last
line says how it ended, and its report is its structured output, shaped like our own `report`.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.base.text import capped, redacted, render, well_formed
from agents.base.transcripts import Transcripts
from agents.conversation.guards import AttemptBudget
from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.wire.exchange import json_object
from agents.tools.report import ReportArguments, read_report
from agents.tools.schema import plain_schema
from agents.tools.tool import ToolInputError
from agents.workers.briefs import brief_files
from agents.workers.program import EVIDENCE, MODEL_VARIABLES, program_name, program_of, run_program
from agents.workers.relay import AgentRelay, OpenRelay
from agents.workers.relay_server import listening, socket_in
from agents.workers.session import Session
from fleet.core.plans.plan import Effort
from fleet.core.state.facts import Failure, FailureKind, Report
from fleet.ports.agents import CommandResult, DrainingError, Meter, WorkerBrief, Workspace

_LINE = 60_000  # characters of the last line that are shown
_ENDINGS: dict[str, FailureKind] = {
    "error_max_turns": "budget",
    "error_max_budget_usd": "budget",
    "error_max_structured_output_retries": "protocol",
}
"""What an end without a report means; any other is a failure of the tool."""
_PERMISSIONS = ("--permission-mode", "--dangerously-skip-permissions", "--restricted")


@dataclass(frozen=True, slots=True)
class ClaudeCodeWorker:
    """Runs one headless session per attempt."""

    settings: WorkerSettings
    common: AgentSettings
    open_relay: OpenRelay
    transcripts: Transcripts

    @property
    def model(self) -> str:
        return self.settings.models[0] if self.settings.models else self.common.worker_model

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """One session, from the prompt to its structured output."""
        settings, program, model = self.settings, program_of(self.settings), brief.model or self.model
        if program is None:
            missing = f"the program {program_name(settings)!r} of this worker is not installed on this machine"
            return Failure(kind="configuration", summary=missing)
        told = await brief.operator.read()
        budget = AttemptBudget(meter, settings.tokens, settings.dollars)
        with (
            brief_files(brief, told, ending=render("claude-code")) as files,
            self.transcripts.open(brief.subtask.id, brief.attempt) as transcript,
            socket_in(files.folder) as socket,
        ):
            prompt = files.prompt.read_text(encoding="utf-8")
            session = Session(prompt, brief.operator, transcript, settings.turns, passed_on=len(told))
            relay = session.listening_to(self.open_relay(budget, transcript, model, settings.turns))
            async with listening(relay, socket):
                result = await run_program(
                    _script(self._command(program, model, brief.effort)),
                    settings,
                    workspace,
                    read_only=(str(program.parent), *map(str, dict.fromkeys((files.folder, socket.parent)))),
                    environment=self._environment(model, socket),
                    dialogue=session.hold,
                )
            if isinstance(result, Failure):
                return result
            ending = well_formed(redacted(session.ending, settings.secrets))
            result = replace(result, output=f"{result.output}{ending[-_LINE:]}")
            transcript.write("command", exit_code=result.exit_code, timed_out=result.timed_out, output=result.output)
            if relay.drained:
                raise DrainingError
            return outcome(result, json_object(ending), relay)

    def _command(self, program: Path, model: str, effort: Effort | None) -> list[str]:
        settings, configured = self.settings, self.settings.command[1:]
        words = [str(program), "--print", "--verbose", "--model", model]
        words += ["--input-format", "stream-json", "--output-format", "stream-json"]
        words += ["--bare", "--setting-sources", "", "--strict-mcp-config", "--no-session-persistence"]
        words += ["--max-turns", str(settings.turns), "--json-schema", json.dumps(plain_schema(ReportArguments))]
        if not any(word.split("=")[0] in _PERMISSIONS for word in configured):
            words.append("--dangerously-skip-permissions")  # the box confines it
        if effort is not None:
            words += ["--effort", effort]
        if settings.dollars is not None:
            words += ["--max-budget-usd", str(settings.dollars)]
        if settings.tools:
            words += ["--tools", ",".join(settings.tools)]
        if settings.prompt.strip():
            words += ["--append-system-prompt", settings.prompt]
        return [*words, *configured]

    def _environment(self, model: str, socket: Path) -> dict[str, str]:
        """One model for everything, no traffic of its own, and no key."""
        command_ms, session_ms = str(int(self.common.command_s * 1000)), str(int(self.settings.time_s * 1000))
        return {
            "ANTHROPIC_API_KEY": "the-relay-has-it",
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",  # unused, because of the socket
            "ANTHROPIC_UNIX_SOCKET": str(socket),
            **dict.fromkeys(MODEL_VARIABLES, model),
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(self.common.max_tokens),
            "CLAUDE_CODE_MAX_RETRIES": str(self.common.retry.retries),
            "API_TIMEOUT_MS": session_ms,  # a call may wait for the service as long as the session lasts
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "BASH_DEFAULT_TIMEOUT_MS": command_ms,
            "BASH_MAX_TIMEOUT_MS": command_ms,
        }


def _script(words: list[str]) -> str:
    """The session, with which we speak through its standard input, then the end of its errors."""
    return (
        'errors="${TMPDIR:-/tmp}/claude-code.err"\n'
        f'{shlex.join(words)} >&0 2>"$errors"\n'
        'code=$?; tail -c 2000 "$errors"\n'
        "exit $code\n"
    )


def outcome(result: CommandResult, ending: Mapping[str, Any], relay: AgentRelay) -> Report | Failure:
    """What the end of a session means."""
    evidence = capped(result.output, EVIDENCE)
    subtype, report = str(ending.get("subtype") or ""), ending.get("structured_output")
    if isinstance(report, dict) and subtype == "success" and not result.timed_out:
        try:
            return read_report(report)
        except ToolInputError as error:
            why = f"{error}\n\n{evidence}"
            return Failure(kind="protocol", summary="the session's report is invalid", evidence=why)
    if result.timed_out:
        summary = f"the session had not finished after {result.seconds:.0f} s"
        return Failure(kind="budget", summary=summary, evidence=evidence)
    if relay.refused is not None:
        return relay.refused.model_copy(update={"evidence": evidence})
    if relay.failure is not None:
        return relay.failure.model_copy(update={"evidence": f"{relay.failure.evidence}\n\n{evidence}"})
    if subtype == "success":
        return Failure(kind="protocol", summary="the session ended without a report", evidence=evidence)
    how = subtype or f"exit code {result.exit_code} and no result"
    return Failure(kind=_ENDINGS.get(subtype, "tool"), summary=f"the session ended with {how}", evidence=evidence)
