"""Sets every git key that names a program in a repository's configuration, and calls every `fleet` command there.

    python -m chaos.canaries            the controls of all keys, then all verbs; a minute or two
    python -m chaos.canaries controls   only the controls: does plain git run the program of each key?
    python -m chaos.canaries verbs      only the verbs

Each program is a canary: it leaves a mark with the name of its key. Expected: a mark for every key that this machine's
git knows, and none after all commands. The hooks in .git/hooks are canaries, too.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from urllib.request import HTTPCookieProcessor, build_opener

from chaos.canary_calls import REFUSED, SERVING, calls
from chaos.canary_keys import KEYS, Key
from fleet.cli.verb_table import VERBS
from scripts.frame import MET, MISSED, add_names, command_line, exit_with, machine, progress, say, temporary_folder
from tests.e2e.stage import Done, Going, Stage, script, subtask, wait_for
from tests.worktrees.conftest import git, make_repository

CONTROL_S = 20.0
USAGE, BUG = 2, 70
HOOKS = (
    "applypatch-msg pre-applypatch post-applypatch pre-commit pre-merge-commit prepare-commit-msg commit-msg "
    "post-commit pre-rebase post-checkout post-merge pre-push pre-receive update proc-receive post-receive post-update "
    "reference-transaction push-to-checkout pre-auto-gc post-rewrite sendemail-validate fsmonitor-watchman "
    "p4-changelist p4-prepare-changelist p4-post-changelist p4-pre-submit post-index-change"
).split()
ATTRIBUTES = "*.flt filter=evil diff=evil merge=evil\n"
WORKERS = """
[workers.shell]
kind = "command"
command = "sh -c 'echo one > one.txt; echo one > a.flt'"

[workers.other]
kind = "command"
command = "sh -c 'echo two > two.txt'"

[workers.clash]
kind = "command"
command = "sh -c 'echo two > a.flt'"

[workers.broken]
kind = "command"
command = "false"
"""
PLAN = """
version = 1
goal = "Write a file"
[[subtasks]]
id = "one"
title = "Write one.txt"
goal = "Write one.txt"
worker = "shell"
failure_action = "ask"
[[subtasks.acceptance]]
criterion = "it is there"
run = "grep -q one one.txt"
"""
OTHERS = (
    ("other", "other", "test -f two.txt"),
    ("conflict", "clash", "grep -q two a.flt"),
    ("broken", "broken", "test -f one.txt"),
)
"""More plans: the name, the worker and the check of each."""
SIGNED = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----\n"


@dataclass(frozen=True)
class Cage:
    """The canaries of one folder, and the marks that they leave there."""

    folder: Path

    @property
    def marks(self) -> Path:
        return self.folder / "marks"

    @property
    def ran(self) -> list[str]:
        """The names of the canaries that ran."""
        return sorted(path.name for path in self.marks.iterdir())

    def canary(self, name: str, *, at: Path | None = None) -> Path:
        """A program that leaves a mark."""
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", name)
        path = at or self.folder / "bin" / slug
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n: > '{self.marks}/{slug}'\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def settings(self, name: str, key: Key) -> Iterator[tuple[str, str]]:
        """The settings of a key, with its canary filled in."""
        program = self.canary(name)
        included, attributes = program.with_suffix(".settings"), program.with_suffix(".attributes")
        included.write_text(f"[core]\n\tfsmonitor = {program}\n", encoding="utf-8")
        attributes.write_text("*.txt filter=named\n", encoding="utf-8")
        hooks = program.with_suffix(".hooks")
        places = {"program": program, "settings": included, "attributes": attributes, "hooks": hooks}
        if "{hooks}" in key.value:
            for hook in HOOKS:
                self.canary(name, at=hooks / hook)
        if key.value == "canary":  # a helper that git looks for in PATH
            self.canary(name, at=program.parent / "git-remote-canary")
        for each, value in {name: key.value, **key.more}.items():
            yield _filled(each, places), _filled(value, places)


def _filled(text: str, places: Mapping[str, Path]) -> str:
    for name, path in places.items():
        text = text.replace(f"{{{name}}}", str(path))
    return text


def open_cage(folder: Path) -> Cage:
    cage = Cage(folder)
    cage.marks.mkdir(parents=True)
    (folder / "bin").mkdir()
    return cage


# ---- repositories ----------------------------------------------------------------------------------------------------


def make_template(folder: Path) -> Path:
    """A repository in which every key has something to act on.

    Branches that conflict, attributes, a remote, objects that are borrowed, a submodule, a commit with a signature.
    """
    part = make_repository(folder / "part", {"part.txt": "part\n"})
    other = make_repository(folder / "other", {"other.txt": "x\n"})
    repository = make_repository(
        folder / "template",
        {
            ".gitattributes": ATTRIBUTES,
            "Makefile": "test:\n\ttest -f a.flt\n",
            "a.flt": "one\n",
            "b.txt": "one\n",
            "c.txt": "one\n",
        },
    )
    git(repository, "submodule", "--quiet", "add", "--name", "sub", str(part), "sub")
    git(repository, "config", "--remove-section", "submodule.sub")
    git(repository, "commit", "--quiet", "-m", "a part")
    for branch, name in (("side", "a.flt"), ("text", "c.txt")):
        git(repository, "checkout", "--quiet", "-b", branch)
        _commit(repository, name, "theirs\n")
        git(repository, "checkout", "--quiet", "main")
    _commit(repository, "a.flt", "ours\n", "c.txt")
    _commit_signed(repository)
    git(folder, "clone", "--quiet", "--bare", str(repository), str(folder / "origin.git"))
    git(folder / "origin.git", "config", "receive.certNonceSeed", "seed")
    git(repository, "config", "remote.origin.url", str(folder / "origin.git"))
    git(repository, "config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    _commit(folder / "other", "other.txt", "y\n")
    alternates = repository / ".git" / "objects" / "info" / "alternates"
    alternates.write_text(f"{other}/.git/objects\n", encoding="utf-8")
    return repository


def _commit(repository: Path, name: str, content: str, *more: str) -> None:
    for each in (name, *more):
        (repository / each).write_text(content, encoding="utf-8")
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "-m", f"{name}: {content.strip()}")


def _commit_signed(repository: Path) -> None:
    """A branch whose commit has something that git takes for a signature."""
    tree = git(repository, "rev-parse", "HEAD^{tree}")
    parent, person = git(repository, "rev-parse", "HEAD"), "Ada <ada@example.org> 1 +0000"
    commit = f"tree {tree}\nparent {parent}\nauthor {person}\ncommitter {person}\n{SIGNED}\nsigned\n"
    file = repository.parent / "signed"
    file.write_text(commit, encoding="utf-8")
    id_ = git(repository, "hash-object", "-t", "commit", "-w", str(file))
    git(repository, "branch", "signed", id_)


def configure(repository: Path, settings: Iterable[tuple[str, str]]) -> None:
    for key, value in settings:
        git(repository, "config", key, value)


# ---- controls --------------------------------------------------------------------------------------------------------


@cache
def git_version() -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", subprocess.check_output(["git", "--version"], text=True))[:2]))


def why_no_control(key: Key) -> str | None:
    """Return why plain git can't run this canary on this machine."""
    if key.since > git_version():
        return f"git {'.'.join(map(str, key.since))} is the first that knows it"
    helpers = Path(subprocess.check_output(["git", "--exec-path"], text=True).strip())
    if key.needs and shutil.which(key.needs) is None and not (helpers / key.needs).exists():
        return f"{key.needs} is not installed"
    return None


def is_run_by_git(name: str, key: Key, template: Path, folder: Path) -> bool:
    """Whether plain git runs the canary of a key in a copy of the template."""
    cage = open_cage(folder)
    repository = folder / "work"
    shutil.copytree(template, repository, symlinks=True)
    settings = list(cage.settings(name, key))
    environment = {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "HOME": str(folder),
        "TERM": "xterm",
        "GIT_AUTHOR_NAME": "Ada",
        "GIT_AUTHOR_EMAIL": "ada@example.org",
        "GIT_COMMITTER_NAME": "Ada",
        "GIT_COMMITTER_EMAIL": "ada@example.org",
    }
    if key.trusted_only:
        (folder / ".gitconfig").touch()
        for each, value in settings:
            git(folder, "config", "--file", str(folder / ".gitconfig"), each, value)
    else:
        configure(repository, settings)
    control = key.control.replace("{settings}", str(cage.canary(name).with_suffix(".settings")))
    subprocess.run(
        ["bash", "-c", control],
        cwd=repository,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=CONTROL_S,
    )
    return bool(cage.ran)


# ---- verbs -----------------------------------------------------------------------------------------------------------


def make_poisoned(folder: Path, template: Path, cage: Cage) -> Path:
    """A copy of the template with all keys and hooks at once, and with files whose time changed."""
    repository = folder / "poisoned"
    shutil.copytree(template, repository, symlinks=True)
    git(repository, "branch", "taken")
    (repository / "plan.toml").write_text(PLAN, encoding="utf-8")
    for name, worker, check in OTHERS:
        plan = PLAN.replace('"shell"', f'"{worker}"').replace("grep -q one one.txt", check)
        (repository / f"{name}.toml").write_text(plan, encoding="utf-8")
    (repository / "script.json").write_text(json.dumps(script(subtask("two"))), encoding="utf-8")
    for hook in HOOKS:
        cage.canary(f"hook {hook}", at=repository / ".git" / "hooks" / hook)
    modules = repository / ".git" / "modules" / "sub" / "config"
    git(repository, "config", "--file", str(modules), "core.fsmonitor", str(cage.canary("core.fsmonitor of a part")))
    for name, key in KEYS.items():
        for each, value in cage.settings(name, key):
            git(folder, "config", "--file", str(repository / ".git" / "config"), "--add", each, value)
    for path in repository.glob("*.*"):
        os.utime(path, (1, 1))
    return repository


@dataclass(frozen=True)
class Called:
    """A call of a verb, and how it ended."""

    verb: str
    done: Done

    @property
    def is_wrong(self) -> bool:
        """Return whether the call did nothing, because of a wrong command or a bug."""
        if self.done.command.removeprefix("fleet ") in REFUSED:
            return self.done.code != USAGE
        return self.done.code in {USAGE, BUG} or "Traceback" in self.done.output

    def __str__(self) -> str:
        return f"{self.done.command}: {self.done.code} {self.done.output.strip()[-200:]!r}"


def call_verbs(folder: Path, template: Path) -> tuple[Cage, list[Called]]:
    """Call every verb in a poisoned repository. Returns the marks, and how each call ended."""
    cage = open_cage(folder / "cage")
    repository = make_poisoned(folder, template, cage)
    settings = folder / "home" / ".config" / "fleet" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(WORKERS, encoding="utf-8")
    stage = Stage(
        folder,
        more={
            "PATH": f"{cage.folder}/bin:{os.environ['PATH']}",
            "EDITOR": "true",
            "FLEET_LIMITS_ANSWER_WAIT_MINUTES": "0.01",
        },
    )
    try:
        with ExitStack() as serving:
            return cage, list(_called(stage, repository, serving, calls()))
    finally:
        stage.kill_engines()


def _called(stage: Stage, repository: Path, serving: ExitStack, lines: Iterable[tuple[str, ...]]) -> Iterator[Called]:
    """Call a command. Servers answer one request; the model continues for calls that need one."""
    model, simulating = "", None
    for arguments in lines:
        progress(" ".join(arguments))
        verb = arguments[0]
        if verb not in SERVING:
            yield Called(verb, stage.fleet(*(word.replace("{model}", model) for word in arguments), at=repository))
            continue
        going = serving.enter_context(stage.going(*arguments, at=repository))
        url = wait_for(partial(_address, going))
        browser = build_opener(HTTPCookieProcessor())
        with browser.open(f"{url}{SERVING[verb]}", timeout=CONTROL_S) as answer:
            answer.read()
        if verb == "simulate":
            model, simulating = url, going
        else:
            yield Called(verb, _stopped(going))
    if simulating is not None:
        yield Called("simulate", _stopped(simulating))


def _address(going: Going) -> str | None:
    found = re.search(r"http://[\d.]+:\d+(/sign-in\?token=\S+)?", going.output)
    return found[0] if found else None


def _stopped(going: Going) -> Done:
    going.signal(signal.SIGINT)
    return going.done()


# ---- the program -----------------------------------------------------------------------------------------------------


def check_controls(folder: Path, template: Path) -> int:
    missed, absent = [], {}
    for name, key in KEYS.items():
        if (reason := why_no_control(key)) is not None:
            absent[name] = reason
        elif not is_run_by_git(name, key, template, folder / re.sub(r"\W", "-", name)):
            missed.append(name)
    shown = len(KEYS) - len(absent) - len(missed)
    say(
        f"controls: git ran the programs of {shown} keys; {len(absent)} can't be shown here; missed: {missed or 'none'}"
    )
    for name, reason in absent.items():
        say(f"  {name}: {reason}")
    return MISSED if missed else MET


def check_verbs(folder: Path, template: Path) -> int:
    cage, ended = call_verbs(folder, template)
    missing = VERBS.keys() - {called.verb for called in ended}
    wrong = [called for called in ended if called.is_wrong]
    say(
        f"{len(KEYS)} keys and {len(HOOKS)} hooks, {len(ended)} calls",
        f"verbs that were not called: {len(missing)} of {len(VERBS)} {' '.join(missing)}".rstrip(),
        f"calls that did nothing: {len(wrong)}",
        *(f"  {called}" for called in wrong),
        f"programs that ran on the host: {len(cage.ran)} {' '.join(cage.ran)}".rstrip(),
    )
    return MISSED if cage.ran or missing or wrong else MET


PARTS = {"controls": check_controls, "verbs": check_verbs}


def main() -> int:
    parser = command_line("chaos.canaries", __doc__)
    add_names(parser, "PART", PARTS)
    args = parser.parse_args()
    say(machine())
    with temporary_folder() as folder:
        template = make_template(folder)
        results = [PARTS[name](folder / name, template) for name in args.names or PARTS]
    return max(results)


if __name__ == "__main__":
    exit_with(main)
