"""The real Claude Code uses only `skills/fleet/SKILL.md`. It and fleet call one simulated model.

    make claude-code                                 installs it first
    python -m chaos.claude_skill --claude .claude-code/node_modules/.bin/claude

It finds the skill, reads it, and runs the commands of that page in order, up to the merge of the result. A worker asks
a question in the meantime, which is answered as the page describes.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from anyio.from_thread import start_blocking_portal

from chaos.claude_program import Session, play
from fleet.app.input_files import read_data
from fleet.runs.run_folder import RunFolder
from scripts.frame import Figure, Table, command_line, exit_with, temporary_folder
from tests.docs.page import File, read_page
from tests.e2e.conftest import served
from tests.e2e.stage import landed
from tests.worktrees.conftest import fingerprint, git, make_repository

ROOT = Path(__file__).parents[1]
SKILL = ROOT / "skills" / "fleet" / "SKILL.md"
TUTORIAL = ROOT / "examples" / "tutorial"
RUN = "greeter"
QUESTION = "Is a greeting formal?"
STATUS, ANSWER = "fleet status", f'fleet answer q1 "TEXT" --run {RUN}'
TAKES = "fleet merge"
"""Commands that only a human may decide about."""


def typed() -> Iterator[str]:
    """Return the page's commands and the files that it requires. Raises `LookupError` if a command is missing."""
    text = SKILL.read_text(encoding="utf-8")
    for named in (f"`{STATUS}`", f"`{ANSWER}`", "`waiting for an answer`"):
        if named not in text:
            raise LookupError(f"{SKILL} does not name {named}")
    for step in read_page(SKILL).steps:
        if isinstance(step, File):
            yield f"printf %s {quote(step.text)} > {quote(step.name)}"
            continue
        if step.text.startswith(TAKES):
            return
        yield step.text
        if step.text.startswith("fleet run "):
            yield f"until {STATUS} {RUN} --json | grep -q 'waiting for an answer'; do sleep 1; done"
            yield f"{STATUS} {RUN}"
            yield ANSWER.replace("TEXT", "No.")


def played(commands: list[str]) -> dict[str, Any]:
    """Return the script of the simulated model: the tutorial with a question for fleet, this page for Claude Code."""
    script = dict(read_data(TUTORIAL / "model.json"))
    workers: dict[str, Any] = dict(script["workers"])
    workers["french"] = {"attempts": [{"do": "ask", "needs": [QUESTION]}, *workers["french"]["attempts"]]}
    reads = {"tool": "Skill", "input": {"skill": "fleet"}}
    types = [{"tool": "Bash", "input": {"command": each, "description": "As the skill says"}} for each in commands]
    return {**script, "workers": workers, "agent": {"calls": [reads, *types], "says": "All has landed on a branch."}}


def trial(folder: Path, claude: Path, table: Table) -> None:
    project = TUTORIAL / "project"
    files = {str(path.relative_to(project)): path for path in project.rglob("*") if path.is_file()}
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items() if path.suffix != ".pyc"}
    repository = make_repository(folder / "work", texts)
    commands = list(typed())
    before, tip = fingerprint(repository), git(repository, "rev-parse", "HEAD", "main")
    with start_blocking_portal() as portal, served(portal) as model:
        done = session(folder, repository, claude, model(played(commands)))
    written = {line.removeprefix("?? ") for line in git(repository, "status", "--porcelain").splitlines()}
    after = fingerprint(repository)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    own = {name for name in written if any(f"> {name}" in each for each in commands)}
    state = RunFolder(folder / "state" / "runs" / RUN).state()
    texts_sent = [str(block.get("text") or block.get("content")) for block in done.blocks]
    page = SKILL.read_text(encoding="utf-8").split("---", 2)[2].strip()
    counted = (
        ("the skill is among those that it finds", int("fleet" in done.begun.get("skills", ())), 1),
        ("the page arrives whole", int(any(page in text for text in texts_sent)), 1),
        ("commands answered, with the reading", len(done.results), len(commands) + 1),
        ("the worker's question is shown", int(any(QUESTION in text for text in texts_sent)), 1),
        ("subtasks on the result branch", len(landed(repository, RUN)), 3),
        ("subtasks landed by the journal", sum(each.landed is not None for each in state.subtasks.values()), 3),
    )
    for what, count, wanted in counted:
        table.add(Figure(what, "Claude Code", count, wanted=wanted, at_least=True))
    refused = sum(bool(each.get("is_error")) for each in done.results)
    moved = int(git(repository, "rev-parse", "HEAD", "main") != tip)
    table.add(
        Figure("commands that failed", "Claude Code", refused, wanted=0),
        Figure("files of the checkout changed, beside those it wrote", "Claude Code", len(changed - own), wanted=0),
        Figure("branches of the person moved", "Claude Code", moved, wanted=0),
    )
    if refused or changed - own:
        sys.stderr.write("\n".join([*sorted(changed - own), *texts_sent])[-6_000:])


def session(folder: Path, repository: Path, claude: Path, url: str) -> Session:
    """One session that has a shell, with `fleet` in its PATH, and the skill."""
    home, bin_ = folder / "home", folder / "bin"
    skill = home / ".claude" / "skills" / "fleet" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_bytes(SKILL.read_bytes())
    bin_.mkdir()
    (bin_ / "fleet").symlink_to(Path(sys.executable).parent / "fleet")
    more = {"PATH": f"{bin_}:/usr/local/bin:/usr/bin:/bin", "NO_COLOR": "1", "FLEET_MODELS_BASE_URL": url}
    more |= {"FLEET_STATE_DIR": str(folder / "state"), "FLEET_PLANNER_SETTLE_S": "0.1"}
    options = ["--setting-sources", "user", "--max-turns", "40", "--allowedTools", "Skill,Bash", "--"]
    prompt = "The greeter should speak French and Spanish, with a command. Use the fleet; my budget is five dollars."
    return play(claude, home, repository, url, *options, prompt, **more)


def main() -> int:
    parser = command_line("chaos.claude_skill", __doc__)
    parser.add_argument("--claude", type=Path, required=True)
    args = parser.parse_args()
    table = Table("Claude Code drives the fleet with the skill alone")
    with temporary_folder() as folder:
        trial(folder, args.claude.resolve(), table)
    return table.finish()


if __name__ == "__main__":
    exit_with(main)
