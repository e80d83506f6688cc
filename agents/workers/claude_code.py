"""A worker that is Claude Code: `claude -p` in a box of its own, without a key and with no way out but our relay.

Its calls to the model go through `relay.py`, where they are counted and bounded. `session.py` speaks with it: the last
line says how it ended, and its report is its structured output, shaped like our own `report`.
"""

import json
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteStream

from agents.conversation.guards import AttemptBudget
from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.exchange import json_object
from agents.models.text import capped, operator_text, redacted, render, well_formed
from agents.models.transcripts import Transcript, Transcripts
from agents.tools.report import ReportArguments, read_report
from agents.tools.tool import ToolInputError, plain_schema
from agents.workers.briefs import brief_files
from agents.workers.command import EVIDENCE, MODEL_VARIABLES, program_name, program_of, run_program
from agents.workers.relay import CALL, AgentRelay, OpenRelay, RelayReply, RelayRequest
from agents.workers.relay_server import listening, socket_in
from fleet.core.facts.facts import Failure, FailureKind, Report
from fleet.core.plans.plan import Effort
from fleet.ports.agents import CommandResult, DrainingError, Meter, WorkerBrief, Workspace
from fleet.ports.operator import Operator

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
        return next(iter(self.settings.choices), self.common.models.worker)

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
        settings, configured = self.settings, self.settings.words[1:]
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
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(self.common.models.max_tokens),
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


# ---- session ---------------------------------------------------------------------------------------------------------
# A session of Claude Code while it runs: its prompt, what the operator says meanwhile, and the line that it ends
# with.
#
# It speaks stream-json through the session's standard streams, which are one socket: no other process in the box can
# write there, so what it passes on is the operator's, and what it reads is the session's.


LONGEST_LINE = 1024 * 1024  # bytes; a longer line is skipped
_RESULT = b'"type":"result"'
_TOO_LONG = b"a line that is too long: "


@dataclass(slots=True)
class Session:
    """Satisfies `Dialogue` with `hold`."""

    prompt: str
    operator: Operator
    transcript: Transcript
    turns: int
    """How often it may call the model."""
    passed_on: int = 0
    """How many of the operator's instructions it was given; those of its prompt are the first."""
    ending: str = ""
    """The line that says how the session ended, or its latest turn."""
    _calls: int = 0
    _unread: list[str] = field(default_factory=list)
    """What was sent, and has not been in a request to the model."""

    async def hold(self, stream: ByteStream) -> None:
        """Send the prompt, pass on what the operator says, and listen until the session has ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._speak, stream)
            await self._listen(stream)
            tasks.cancel_scope.cancel()

    def listening_to(self, relay: AgentRelay) -> "OverheardRelay":
        """The relay for its calls, which tells the session of each."""
        return OverheardRelay(relay, self)

    async def note_request(self, body: Mapping[str, Any]) -> None:
        """Put on record which instructions this request to the model holds."""
        self._calls += 1
        texts = list(_texts(body.get("messages"))) if self._unread else []
        held = next((at for at, each in enumerate(self._unread) if not _is_in(each, texts)), len(self._unread))
        if held:
            read, self._unread = self._unread[:held], self._unread[held:]
            self.transcript.write("operator", content=[{"type": "text", "text": each} for each in read])
            await self.operator.mark_read(self.passed_on - len(self._unread))

    async def _speak(self, stream: ByteStream) -> None:
        """Send the prompt, and what the operator says, until the session takes no more."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await stream.send(_user(self.prompt))
            while True:
                await self.operator.wait_told(self.passed_on)
                news = self.operator.told(self.passed_on)
                texts = [operator_text(each, number) for number, each in enumerate(news, start=self.passed_on + 1)]
                self.passed_on += len(news)
                self._unread += texts
                if any(each.interrupt for each in news):
                    await stream.send(_interrupt(self.passed_on))
                for text in texts:
                    await stream.send(_user(text))

    async def _listen(self, stream: ByteStream) -> None:
        """Read until the end. After a turn the session's input ends, unless it still has to read what was sent."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line in _lines(stream):
                text = line.decode("utf-8", "replace")
                if _RESULT not in line or json_object(text).get("type") != "result":
                    continue
                self.ending = text
                if not self._has_unread:
                    await stream.send_eof()
                elif self._calls >= self.turns:
                    return  # another turn could only fail, and take this result away

    @property
    def _has_unread(self) -> bool:
        return bool(self._unread) or bool(self.operator.told(self.passed_on))


@dataclass(slots=True)
class OverheardRelay:
    """Satisfies `AgentRelay`: a session knows of each of its requests before the relay does."""

    relay: AgentRelay
    session: Session

    @property
    def refused(self) -> Failure | None:
        return self.relay.refused

    @property
    def failure(self) -> Failure | None:
        return self.relay.failure

    @property
    def drained(self) -> bool:
        return self.relay.drained

    async def handle(self, request: RelayRequest, reply: RelayReply) -> None:
        if request.path == CALL:
            await self.session.note_request(json_object(request.body))
        await self.relay.handle(request, reply)

    def close(self) -> None:
        self.relay.close()


async def _lines(stream: ByteStream) -> AsyncIterator[bytes]:
    """The lines of a stream. Of one that is too long only a part comes, which is no JSON."""
    rest = b""
    async for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        if len(rest) > LONGEST_LINE:
            rest = _TOO_LONG


def _is_in(text: str, texts: Sequence[str]) -> bool:
    return any(text in each for each in texts)


def _texts(messages: object) -> Iterator[str]:
    """What the session itself says in a request: neither the model's words nor results of tools."""
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") in {"user", "system"}:
            content = message.get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in blocks if isinstance(blocks, list) else ():
                if isinstance(block, dict) and block.get("type") == "text":
                    yield str(block.get("text", ""))


def _user(text: str) -> bytes:
    return _line(type="user", message={"role": "user", "content": [{"type": "text", "text": text}]})


def _interrupt(number: int) -> bytes:
    return _line(type="control_request", request_id=f"interrupt-{number}", request={"subtype": "interrupt"})


def _line(**message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=True).encode() + b"\n"
