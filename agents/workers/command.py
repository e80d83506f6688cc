"""A worker that runs a program: another agent, a script, a deployment step. It reports in a file or by its exit code.

It runs in the sandbox, like every command. Its brief is in a separate folder that the sandbox shows.
"""

import json
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import Any

from agents.conversation.settings import WorkerSettings
from agents.models.text import capped, redacted, render, well_formed
from agents.models.transcripts import Transcripts
from agents.tools.report import read_report
from agents.tools.tool import ToolInputError
from agents.workers.briefs import brief_files
from fleet.core.base.ids import did_you_mean
from fleet.core.base.output import parse_json
from fleet.core.facts.facts import Failure, Report
from fleet.ports.agents import CommandResult, Dialogue, Meter, WorkerBrief, Workspace, WorkspaceError

LONGEST_REPORT = 24_000  # bytes of a report file, which has to fit into the part of the output that is never cut
_SUMMARY = 600  # characters of an output
_CAN_NOT_START = frozenset({126, 127})  # exit codes of a shell


@dataclass(frozen=True, slots=True)
class CommandWorker:
    """Runs a command line per attempt."""

    settings: WorkerSettings
    transcripts: Transcripts

    @property
    def model(self) -> str | None:
        return next(iter(self.settings.choices), None)

    async def run(self, brief: WorkerBrief, workspace: Workspace, meter: Meter) -> Report | Failure:
        """Run the program and read its report."""
        if not meter.may_call():
            return Failure(kind="spent", summary="the budget is used up")
        settings, marker = self.settings, token_hex(8)
        told = await brief.operator.read()
        with brief_files(brief, told, ending=f"{settings.prompt.strip()}\n\n{render('command')}") as files:
            paths = {"subtask": str(files.subtask), "prompt": str(files.prompt)}
            try:
                line = shell_line(settings.words, values_of(brief, model=brief.model or self.model, **paths))
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
    """Return a script that runs the command and prints its report. `/tmp` only exists in the sandbox."""
    return (
        'FLEET_REPORT="${TMPDIR:-/tmp}/fleet-report.json"; export FLEET_REPORT; rm -f -- "$FLEET_REPORT"\n'
        f"{line}\n"
        f"code=$?; printf '\\n%s\\n' {marker}\n"
        f'if [ -f "$FLEET_REPORT" ]; then head -c {LONGEST_REPORT + 1} -- "$FLEET_REPORT"; fi\n'
        "exit $code\n"
    )


def outcome(result: CommandResult, report: str) -> Report | Failure:
    """Return the program's report, or a result from its exit code and the end of its output."""
    evidence = capped(result.output, EVIDENCE)
    if result.timed_out:
        summary = f"the command did not finish within {result.seconds:.0f} s"
        return Failure(kind="budget", summary=summary, evidence=evidence)
    if report.strip():
        return _read(report, result.exit_code, evidence)
    last = result.output[-_SUMMARY:].strip() or "no output"
    if result.exit_code == 0:
        return Report(status="done", summary=last)
    return Report(
        status="failed",
        summary=f"the command failed with exit code {result.exit_code}",
        error_kind="environment" if result.exit_code in _CAN_NOT_START else "other",
        error_message=evidence or last,
    )


def _read(text: str, exit_code: int, evidence: str) -> Report | Failure:
    """Parse the program's report. It is invalid if the exit code contradicts it."""
    try:
        report = read_report(_parsed(text))
    except (ValueError, ToolInputError) as error:
        why = f"{error}\n\n{capped(text, EVIDENCE)}"
        return Failure(kind="protocol", summary="the command's report is invalid", evidence=why)
    if exit_code != 0 and report.status == "done":
        summary = f"the command reported done but failed with exit code {exit_code}"
        return Failure(kind="tool", summary=summary, evidence=f"{report.summary}\n\n{evidence}")
    return report


def _parsed(text: str) -> Mapping[str, Any]:
    if len(text.encode("utf-8", "replace")) > LONGEST_REPORT:
        raise ToolInputError(f"the report is longer than {LONGEST_REPORT} bytes")
    document = parse_json(text)
    if not isinstance(document, dict):
        raise ToolInputError("the report is not a JSON object")
    return document


# ---- command line ----------------------------------------------------------------------------------------------------
# A command line with placeholders. It is split into words before they are filled in, so that a value can't add words.
#
# Text from a model (a goal, a title) is always a single argument of the program that the operator configured.


PARAMETER = "parameters."
OURS = frozenset({"id", "run", "attempt", "subtask", "prompt", "report"})
"""Trusted values: slugs, numbers and fleet's paths."""
THEIRS = frozenset({"title", "goal", "guidance", "model"})
REPORT = '"$FLEET_REPORT"'
LONGEST = 100_000  # bytes. The shell gets the full line as one argument, for which the kernel's limit is 128 KiB.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
_SCRIPT = re.compile(r"-\w*[ce]|--eval|--command")
_INTERPRETERS = re.compile(r"(?:ba|da|z|k|fi)?sh|python[\d.]*|node|perl|ruby|eval")


class MissingValueError(Exception):
    """A missing or unusable value for a placeholder. The message is for the planner."""


def line_problem(words: tuple[str, ...]) -> str | None:
    """Return why a command line is invalid, for the operator, or None."""
    if not words:
        return 'command is missing. Set it to a command line such as "tool --flag {goal}"'
    for name in (name for word in words for name in _PLACEHOLDER.findall(word)):
        if name not in OURS | THEIRS and not name.startswith(PARAMETER):
            known = f"; available placeholders: {', '.join(sorted(OURS | THEIRS))} and {PARAMETER}NAME."
            hint = did_you_mean(name, OURS | THEIRS) or known
            return f"command: unknown placeholder {{{name}}}{hint} For literal text, write {{ {name} }}"
    if _PLACEHOLDER.search(words[0]):
        return "command: the program itself can't be a placeholder"
    script = next(_scripts(words), None)
    if script is not None and any(name not in OURS for name in _PLACEHOLDER.findall(script)):
        return (
            "command: a placeholder inside a script would be executed. Pass it as an argument: "
            "sh -c 'tool \"$1\"' sh {goal}"
        )
    return None


def _scripts(words: tuple[str, ...]) -> Iterator[str]:
    """Yield the words that an interpreter would execute as a script."""
    for at, word in enumerate(words[1:-1], start=1):
        if _SCRIPT.fullmatch(word) and any(_INTERPRETERS.fullmatch(PurePosixPath(each).name) for each in words[:at]):
            yield words[at + 1]


def parameters_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parameters that each subtask has to set for a command line."""
    names = (name for word in words for name in _PLACEHOLDER.findall(word) if name.startswith(PARAMETER))
    return tuple(dict.fromkeys(name.removeprefix(PARAMETER) for name in names))


def shell_line(words: tuple[str, ...], values: Mapping[str, str]) -> str:
    """Fill in the values, and quote each word. Raises `MissingValueError`."""
    line = " ".join(_filled(word, values) for word in words)
    if len(line.encode("utf-8", "replace")) > LONGEST:
        raise MissingValueError("the values for the worker's command are too long: shorten the goal")
    if "\0" in line:
        raise MissingValueError("a value for the worker's command contains a NUL character")
    return line


def _filled(word: str, values: Mapping[str, str]) -> str:
    parts: list[str] = []
    for at, part in enumerate(_PLACEHOLDER.split(word)):
        if at % 2 == 0:
            parts.append(shlex.quote(part) if part else "")
        elif part == "report":
            parts.append(REPORT)
        elif part in values:
            parts.append(shlex.quote(values[part]))
        else:
            names = ", ".join(sorted(name for name in values if name.startswith(PARAMETER))) or "none"
            raise MissingValueError(f"the worker's command requires {part}, but this subtask sets {names}")
    return "".join(parts) or "''"


def values_of(brief: WorkerBrief, *, model: str | None, subtask: str, prompt: str) -> dict[str, str]:
    """Return the values of the placeholders. `subtask` and `prompt` are file paths."""
    spec = brief.subtask
    parameters = {f"{PARAMETER}{name}": _text(value) for name, value in spec.parameters.items()}
    values = {
        "id": spec.id,
        "run": brief.run,
        "attempt": str(brief.attempt),
        "title": spec.title,
        "goal": spec.goal,
        "guidance": brief.guidance,
        "subtask": subtask,
        "prompt": prompt,
    }
    return parameters | values | ({"model": model} if model else {})


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


# ---- program ---------------------------------------------------------------------------------------------------------
# Shared by workers that run a program: its path, its execution in the sandbox, its redacted output.


EVIDENCE = 4_000  # characters of an output in a failure
MODEL_VARIABLES = ("ANTHROPIC_SMALL_FAST_MODEL", "ANTHROPIC_DEFAULT_HAIKU_MODEL", "CLAUDE_CODE_SUBAGENT_MODEL")
"""Variables with which agents select additional models."""


def program_name(settings: WorkerSettings) -> str:
    """Return the program of a claude-code worker."""
    return next(iter(settings.words), "claude")


def program_of(settings: WorkerSettings) -> Path | None:
    """Return the resolved path of the program on this machine; None if it is not installed."""
    path = shutil.which(program_name(settings))
    return Path(path).resolve() if path else None


async def run_program(
    script: str,
    settings: WorkerSettings,
    workspace: Workspace,
    *,
    read_only: tuple[str, ...],
    environment: Mapping[str, str],
    dialogue: Dialogue | None = None,
) -> CommandResult | Failure:
    """Run a script in the worker's sandbox, with additional `read_only` paths and `environment` variables."""
    extras = settings.extras
    extras = replace(
        extras,
        read_only=(*extras.read_only, *read_only),
        environment={**extras.environment, **environment},
    )
    try:
        result = await workspace.run(script, timeout_s=settings.time_s, extras=extras, dialogue=dialogue)
    except WorkspaceError as error:
        return Failure(kind="tool", summary=str(error))
    return replace(result, output=well_formed(redacted(result.output, settings.secrets)))


# ---- acp extra -------------------------------------------------------------------------------------------------------
# Detects the extra `acp` without importing it.


ACP_EXTRA = "pip install 'worktree-fleet[acp]'"


def has_acp() -> bool:
    return find_spec("acp") is not None
