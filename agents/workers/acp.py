"""A worker that runs any ACP agent in a sandbox. Only the agent's command line is known.

With a configured model, its calls go through `relay.py`, at an address in the sandbox. Otherwise it uses its own
account and reports its usage. Its report is a file, as for other programs, or its last message.
"""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex

from agents.conversation.guards import AttemptBudget
from agents.conversation.settings import AgentSettings, WorkerSettings
from agents.models.text import capped, redacted, render, well_formed
from agents.models.transcripts import Transcript, Transcripts
from agents.workers import acp_host as host
from agents.workers.acp_client import Notes
from agents.workers.acp_session import Claims, Session
from agents.workers.briefs import BriefFiles, brief_files
from agents.workers.command import (
    EVIDENCE,
    MODEL_VARIABLES,
    MissingValueError,
    outcome,
    run_program,
    shell_line,
    values_of,
)
from agents.workers.relay import AgentRelay, OpenRelay
from agents.workers.relay_server import listening, socket_in
from fleet.core.facts.facts import Failure, Report
from fleet.ports.agents import CommandResult, DrainingError, Meter, WorkerBrief, Workspace

HOST = Path(host.__file__)
_SUMMARY = 2_000  # characters of the agent's last message


@dataclass(frozen=True, slots=True)
class AcpWorker:
    """Runs one session per attempt."""

    settings: WorkerSettings
    common: AgentSettings
    open_relay: OpenRelay
    transcripts: Transcripts

    @property
    def model(self) -> str | None:
        return next(iter(self.settings.choices), None)

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """Run a session, from the prompt to its report."""
        if not meter.may_call():
            return Failure(kind="spent", summary="the budget is used up")
        settings, marker, told = self.settings, token_hex(8), await brief.operator.read()
        model = (brief.model or self.model) if self.model else None
        budget = AttemptBudget(meter, settings.tokens, settings.dollars)
        claims = Claims(budget, model)
        ending = f"{settings.prompt.strip()}\n\n{render('acp')}"
        with (
            brief_files(brief, told, ending=ending) as files,
            self.transcripts.open(brief.subtask.id, brief.attempt) as transcript,
            self._relay_for(files, model, budget, transcript) as (relay, socket),
        ):
            try:
                line = self._line(brief, model, files)
            except MissingValueError as error:
                return Failure(kind="other", summary=str(error))
            prompt = files.prompt.read_text(encoding="utf-8")
            notes = Notes(transcript, settings.secrets)
            session = Session(prompt, workspace.root, brief.operator, notes, claims.charge)
            order = {"line": line, "root": workspace.root, "marker": marker, "bridge": str(socket) if socket else ""}
            folders = (files.folder, *((socket.parent,) if socket else ()))
            async with listening(relay, socket) if relay and socket else nullcontext():
                result = await run_program(
                    _script(files, order),
                    settings,
                    workspace,
                    read_only=(sys.base_prefix, *map(str, dict.fromkeys(folders))),
                    environment=self._environment(model, socket, files),
                    dialogue=session.hold,
                )
            if isinstance(result, Failure):
                return result
            await claims.settle()
            output, _, report = f"\n{result.output}".rpartition(f"\n{marker}\n")
            result = replace(result, output=output.strip("\n"))
            session.text = well_formed(redacted(session.text, settings.secrets))
            fields = {"timed_out": result.timed_out, "seconds": result.seconds, "output": result.output}
            transcript.write("command", line=line, exit_code=result.exit_code, report=report, **fields)
            if relay is not None and relay.drained:
                raise DrainingError
            return _outcome(result, report, session, relay)

    @contextmanager
    def _relay_for(
        self, files: BriefFiles, model: str | None, budget: Meter, transcript: Transcript
    ) -> Iterator[tuple[AgentRelay | None, Path | None]]:
        """Open the relay for a configured model. Yields None for an agent that uses its own account."""
        if model is None:
            yield None, None
            return
        with socket_in(files.folder) as socket:
            yield self.open_relay(budget, transcript, model, self.settings.turns), socket

    def _line(self, brief: WorkerBrief, model: str | None, files: BriefFiles) -> str:
        paths = {"subtask": str(files.subtask), "prompt": str(files.prompt)}
        return shell_line(self.settings.words, values_of(brief, model=model, **paths))

    def _environment(self, model: str | None, socket: Path | None, files: BriefFiles) -> dict[str, str]:
        ours = {"FLEET_SUBTASK": str(files.subtask), "FLEET_PROMPT": str(files.prompt)}
        return ours if model is None or socket is None else {**ours, **model_environment(model, socket)}


def model_environment(model: str, socket: Path) -> dict[str, str]:
    """Return variables that set one model for everything, and no key. The address is set later, in the sandbox."""
    return {
        "ANTHROPIC_API_KEY": "the-relay-has-it",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:9",
        "ANTHROPIC_UNIX_SOCKET": str(socket),
        "ANTHROPIC_MODEL": model,
        **dict.fromkeys(MODEL_VARIABLES, model),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def _script(files: BriefFiles, order: dict[str, str]) -> str:
    """Return the script that starts the host program of the agent, with the same Python as fleet."""
    program = files.folder / HOST.name
    shutil.copyfile(HOST, program)
    return f"exec {shlex.join((os.path.realpath(sys.executable), '-I', '-S', str(program), json.dumps(order)))}"


def _outcome(result: CommandResult, report: str, session: Session, relay: AgentRelay | None) -> Report | Failure:
    """Convert the end of a session to a report, or to a failure if a limit was reached first."""
    evidence = capped("\n\n".join(filter(None, (result.output, session.text))), EVIDENCE)
    if result.timed_out:
        return Failure(
            kind="budget", summary=f"the session did not finish within {result.seconds:.0f} s", evidence=evidence
        )
    if session.is_over and report.strip():
        return outcome(replace(result, exit_code=0), report)
    if relay is not None and (stop := relay.refused or relay.failure):
        return stop.model_copy(update={"evidence": "\n\n".join(filter(None, (stop.evidence, evidence)))})
    if session.failure is not None:
        return session.failure.model_copy(update={"evidence": evidence})
    if not session.is_over:
        summary = f"the agent exited with code {result.exit_code} before it was done"
        return Failure(kind="tool", summary=summary, evidence=evidence)
    if not session.text.strip():
        return Failure(kind="protocol", summary="the agent ended its turn without a report", evidence=evidence)
    return Report(status="done", summary=session.text.strip()[-_SUMMARY:])
