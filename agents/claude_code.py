"""A worker that is Claude Code: `claude -p`, in a box of its own, with no key and no way out but our relay.

What it asks the model goes through `relay.py`, where it is counted and bounded; how it ends is read from the last line
of its stream-json. Its report is its structured output, in the shape of our own `report`.
"""

import json
import shlex
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.allowance import Allowance
from agents.command import handed
from agents.models.calls import Caller
from agents.prompting import render
from agents.relay import Relay, Terms, open_relay
from agents.settings import MindSettings, WorkerSettings
from agents.text import capped, hidden, well_formed
from agents.tools.report import ReportArguments, read_report
from agents.tools.schema import plain_schema
from agents.tools.tool import BadInput
from agents.transcripts import Transcripts
from fleet.core.facts import Failure, FailureKind, Report
from fleet.ports import CommandResult, Desk, DeskError, Drained, Extras, Meter, WorkerBrief

PROGRAM = ("claude",)
_EVIDENCE = 4_000  # characters of an output
_LINE = 60_000  # bytes of the line that tells the end; what a desk hands over whole
_ENDINGS: dict[str, FailureKind] = {
    "error_max_turns": "budget",
    "error_max_budget_usd": "budget",
    "error_max_structured_output_retries": "protocol",
}
"""What its own words for an end without a report mean; anything else is its tool's fault."""
_PERMISSIONS = ("--permission-mode", "--dangerously-skip-permissions", "--restricted")


def program_of(own: WorkerSettings) -> Path | None:
    """The program on this machine, links followed; None where there is none."""
    found = shutil.which((own.command or PROGRAM)[0])
    return Path(found).resolve() if found else None


@dataclass(frozen=True, slots=True)
class ClaudeCodeWorker:
    """Runs one headless session an attempt."""

    own: WorkerSettings
    settings: MindSettings
    caller: Caller
    transcripts: Transcripts

    @property
    def model(self) -> str | None:
        return self.own.models[0] if self.own.models else self.settings.worker_model

    async def run(self, brief: WorkerBrief, desk: Desk, meter: Meter) -> Report | Failure:
        """One session, from the prompt to its structured output."""
        own, program = self.own, program_of(self.own)
        if program is None:
            name = (own.command or PROGRAM)[0]
            return Failure(kind="configuration", summary=f"there is no program {name!r} here, and a worker needs it")
        terms = Terms(model=brief.model or self.model or self.settings.worker_model, turns=own.turns)
        allowance = Allowance(meter, own.tokens, own.dollars)
        with (
            handed(brief, besides=render("claude-code")) as files,
            self.transcripts.open(brief.subtask.id, brief.attempt) as transcript,
        ):
            socket = files.folder / "model.sock"
            extras = self._extras(terms.model, program, socket)
            script = _script(self._words(program, terms), files.prompt)
            wired = open_relay(socket, self.settings, terms, self.caller, meter=allowance, transcript=transcript)
            async with wired as relay:
                try:
                    done = await desk.run(script, timeout_s=own.time_s, extras=extras)
                except DeskError as error:
                    return Failure(kind="tool", summary=str(error))
            done = replace(done, output=well_formed(hidden(done.output, own.secrets)))
            transcript.write("command", exit_code=done.exit_code, timed_out=done.timed_out, output=done.output)
            if relay.drained:
                raise Drained
            return outcome(done, relay)

    def _extras(self, model: str, program: Path, socket: Path) -> Extras:
        own = self.own.extras
        return replace(
            own,
            read_only=(*own.read_only, str(program.parent), str(socket.parent)),
            environment={
                **_profile(model, self.own, self.settings),
                "ANTHROPIC_UNIX_SOCKET": str(socket),
                **own.environment,
            },
        )

    def _words(self, program: Path, terms: Terms) -> list[str]:
        own = self.own
        given = list((own.command or PROGRAM)[1:])
        words = [str(program), "--print", "--output-format", "stream-json", "--verbose", "--model", terms.model]
        words += ["--bare", "--setting-sources", "", "--strict-mcp-config", "--no-session-persistence"]
        words += ["--max-turns", str(own.turns), "--json-schema", json.dumps(report_schema())]
        if not any(word.split("=")[0] in _PERMISSIONS for word in given):
            words.append("--dangerously-skip-permissions")  # the box is what it may not leave
        if own.dollars is not None:
            words += ["--max-budget-usd", str(own.dollars)]
        if own.tools:
            words += ["--tools", ",".join(own.tools)]
        if own.prompt.strip():
            words += ["--append-system-prompt", own.prompt]
        return [*words, *given]


def report_schema() -> dict[str, Any]:
    """What the session has to end with: all that a report may hold, since its own parser needs no strict mode."""
    return plain_schema(ReportArguments)


def _profile(model: str, own: WorkerSettings, settings: MindSettings) -> dict[str, str]:
    """The environment of a session: one model for everything, no errands of its own, and no key."""
    milliseconds = str(int(settings.command_s * 1000))
    same = ("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
    return {
        "ANTHROPIC_API_KEY": "the-relay-has-it",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",  # never used: there is the socket
        **dict.fromkeys(same, model),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(settings.max_tokens),
        "CLAUDE_CODE_MAX_RETRIES": str(settings.retries),
        "API_TIMEOUT_MS": str(int(own.time_s * 1000)),  # a call may wait for the service as long as the session lasts
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "BASH_DEFAULT_TIMEOUT_MS": milliseconds,
        "BASH_MAX_TIMEOUT_MS": milliseconds,
    }


def _script(words: list[str], prompt: Path) -> str:
    """The session with its stream in a file of the box, and then the end: of the stream and of its errors."""
    return (
        'said="${TMPDIR:-/tmp}/claude-code"\n'
        f'{shlex.join(words)} <{shlex.quote(str(prompt))} >"$said.out" 2>"$said.err"\n'
        'code=$?; tail -c 2000 "$said.err"\n'
        f'grep -a \'"type":"result"\' "$said.out" | tail -n 1 | head -c {_LINE}\n'
        "exit $code\n"
    )


def outcome(done: CommandResult, relay: Relay) -> Report | Failure:
    """What the end of a session means."""
    evidence = capped(done.output, _EVIDENCE)
    limit = relay.refused
    if done.timed_out:
        limit = Failure(kind="budget", summary=f"the session had not finished after {done.seconds:.0f} s")
    result = last_result(done.output)
    report = result.get("structured_output")
    if isinstance(report, dict) and result.get("subtype") == "success" and not done.timed_out:
        try:
            return read_report(report)
        except BadInput as error:
            return Failure(kind="protocol", summary="the session's report is none", evidence=f"{error}\n\n{evidence}")
    if limit is not None:
        return limit.model_copy(update={"evidence": evidence})
    if relay.failure is not None:
        return relay.failure.model_copy(update={"evidence": f"{relay.failure.evidence}\n\n{evidence}"})
    subtype = str(result.get("subtype") or "")
    if subtype == "success":
        return Failure(kind="protocol", summary="the session ended without a report", evidence=evidence)
    how = subtype or f"exit code {done.exit_code} and no result"
    return Failure(kind=_ENDINGS.get(subtype, "tool"), summary=f"the session ended with {how}", evidence=evidence)


def last_result(output: str) -> Mapping[str, Any]:
    """The line of a stream that tells its end; empty where there is none."""
    for line in reversed(output.splitlines()):
        with suppress(ValueError, RecursionError):
            said = json.loads(line)
            if isinstance(said, dict) and said.get("type") == "result":
                return said
    return {}
