"""A worker that runs Claude Code: `claude -p` in a sandbox, without a key. Its only connection is the relay.

Its model calls go through `relay.py`, which counts and limits them. The last line of its output has the result, and its
report is its structured output, in the format of the tool `report`.
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

_LINE = 60_000  # characters of the last line to show
_ENDINGS: dict[str, FailureKind] = {
    "error_max_turns": "budget",
    "error_max_budget_usd": "budget",
    "error_max_structured_output_retries": "protocol",
}
"""The failure kinds of endings without a report. Other endings are failures of the tool."""
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
        """Run a session, from the prompt to its structured output."""
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
            session = CliSession(prompt, brief.operator, transcript, settings.turns, passed_on=len(told))
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
            words.append("--dangerously-skip-permissions")  # the sandbox restricts it
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
        """Return variables that set one model for everything, disable other traffic and omit the key."""
        command_ms, session_ms = str(int(self.common.command_s * 1000)), str(int(self.settings.time_s * 1000))
        return {
            "ANTHROPIC_API_KEY": "the-relay-has-it",
            "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",  # unused, because of the socket
            "ANTHROPIC_UNIX_SOCKET": str(socket),
            **dict.fromkeys(MODEL_VARIABLES, model),
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(self.common.models.max_tokens),
            "CLAUDE_CODE_MAX_RETRIES": str(self.common.retry.retries),
            "API_TIMEOUT_MS": session_ms,  # a call may wait for the service during the full session
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "BASH_DEFAULT_TIMEOUT_MS": command_ms,
            "BASH_MAX_TIMEOUT_MS": command_ms,
        }


def _script(words: list[str]) -> str:
    """Return a script that runs the session and prints the end of its stderr."""
    return (
        'errors="${TMPDIR:-/tmp}/claude-code.err"\n'
        f'{shlex.join(words)} >&0 2>"$errors"\n'
        'code=$?; tail -c 2000 "$errors"\n'
        "exit $code\n"
    )


def outcome(result: CommandResult, ending: Mapping[str, Any], relay: AgentRelay) -> Report | Failure:
    """Convert the end of a session to a report or a failure."""
    evidence = capped(result.output, EVIDENCE)
    subtype, report = str(ending.get("subtype") or ""), ending.get("structured_output")
    if isinstance(report, dict) and subtype == "success" and not result.timed_out:
        try:
            return read_report(report)
        except ToolInputError as error:
            why = f"{error}\n\n{evidence}"
            return Failure(kind="protocol", summary="the session's report is invalid", evidence=why)
    if result.timed_out:
        summary = f"the session did not finish within {result.seconds:.0f} s"
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
# A running session of Claude Code: its prompt, the operator's instructions, and its last line.
#
# It uses stream-json over the standard streams of the session, which are one socket. Other processes in the sandbox
# can't write to it, so that input is always from the operator and output from the session.


LONGEST_LINE = 1024 * 1024  # bytes of the longest line that is read
_RESULT = b'"type":"result"'
_TOO_LONG = b"a line that is too long: "


@dataclass(slots=True)
class CliSession:
    """Implements `Dialogue` with `hold`."""

    prompt: str
    operator: Operator
    transcript: Transcript
    turns: int
    """The maximum number of model calls."""
    passed_on: int = 0
    """The number of instructions that were sent, including those in the prompt."""
    ending: str = ""
    """The line with the result of the session, or of its latest turn."""
    _calls: int = 0
    _unread: list[str] = field(default_factory=list)
    """Instructions that were sent and have not been part of a request to the model."""

    async def hold(self, stream: ByteStream) -> None:
        """Send the prompt, forward the operator's instructions, and process output until the session ends."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._speak, stream)
            await self._listen(stream)
            tasks.cancel_scope.cancel()

    def listening_to(self, relay: AgentRelay) -> "OverheardRelay":
        """Return a relay that reports each call to the session."""
        return OverheardRelay(relay, self)

    async def note_request(self, body: Mapping[str, Any]) -> None:
        """Record the instructions that are part of this request to the model."""
        self._calls += 1
        texts = list(_texts(body.get("messages"))) if self._unread else []
        held = next((at for at, each in enumerate(self._unread) if not _is_in(each, texts)), len(self._unread))
        if held:
            read, self._unread = self._unread[:held], self._unread[held:]
            self.transcript.write("operator", content=[{"type": "text", "text": each} for each in read])
            await self.operator.mark_read(self.passed_on - len(self._unread))

    async def _speak(self, stream: ByteStream) -> None:
        """Send the prompt and the operator's instructions until the session's input is closed."""
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
        """Read output until the end. After a turn, close the input, unless instructions are still unread."""
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async for line in _lines(stream):
                text = line.decode("utf-8", "replace")
                if _RESULT not in line or json_object(text).get("type") != "result":
                    continue
                self.ending = text
                if not self._has_unread:
                    await stream.send_eof()
                elif self._calls >= self.turns:
                    return  # another turn would fail and replace this result

    @property
    def _has_unread(self) -> bool:
        return bool(self._unread) or bool(self.operator.told(self.passed_on))


@dataclass(slots=True)
class OverheardRelay:
    """Implements `AgentRelay`. Reports each request to the session before the relay handles it."""

    relay: AgentRelay
    session: CliSession

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
    """Yield the lines of a stream. Lines that are too long are truncated and therefore not valid JSON."""
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
    """Yield the texts of the session in a request, without model output and tool results."""
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
