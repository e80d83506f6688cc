"""The whole demo: a repository, a simulated model, a run, and the proof that it worked."""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.demo import scenario
from examples.demo.fleet_cli import DemoError, Fleet, open_questions
from examples.demo.library import LARGE, SMALL, library
from examples.demo.repository import build_repository

PROJECT = Path(__file__).resolve().parents[2]
LOOK_EVERY_S = 1.5
PROBE_S = 20
INTERRUPTED = 130
DEFAULT_WORKERS = {SMALL: 16, LARGE: 120}
OTHER_ANSWER = "Try again as specified: the specification is right."


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line."""

    subtasks: int
    workers: int
    keep: Path | None
    sandbox: str | None
    nodes: Path | None = None


@dataclass(frozen=True, slots=True)
class Scene:
    """The files of one demo."""

    folder: Path

    @property
    def repository(self) -> Path:
        return self.folder / "textkit"

    @property
    def fleet(self) -> Fleet:
        return Fleet(state=self.folder / "state", config=self.folder / "config.toml")


def read_options(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="demo.py", description="Run fleet on a small library, with a simulated model."
    )
    parser.add_argument("--subtasks", type=int, choices=(SMALL, LARGE), default=SMALL)
    parser.add_argument("--workers", type=int, help="maximum concurrent attempts (default: 16, or 120)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="new or empty working directory")
    parser.add_argument("--sandbox", choices=("bubblewrap", "none"), help="sandbox; default: bubblewrap if it works")
    parser.add_argument("--nodes", type=Path, metavar="FILE", help="TOML file with [nodes.NAME] tables of worker nodes")
    parsed = parser.parse_args(arguments)
    workers = parsed.workers or DEFAULT_WORKERS[parsed.subtasks]
    return Options(parsed.subtasks, workers, parsed.keep, parsed.sandbox, parsed.nodes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo. Returns the exit code."""
    options = read_options(sys.argv[1:] if arguments is None else arguments)
    try:
        scene = Scene(prepare_folder(options))
        return run_demo(scene, options)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1


def prepare_folder(options: Options) -> Path:
    """A fresh folder: the one to keep, or the project's own, whose old contents are deleted."""
    if options.keep is not None:
        folder = options.keep.resolve()
        if folder.exists() and any(folder.iterdir()):
            raise DemoError(f"{folder} is not empty; choose a new directory")
    else:
        folder = PROJECT / ".demo" / f"textkit-{options.subtasks}"
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_demo(scene: Scene, options: Options) -> int:
    modules = library(options.subtasks)
    say(f"a Python library with {len(modules)} stubs and a failing specification, in {scene.repository}")
    build_repository(scene.repository, modules)
    epic, script = scene.folder / "epic.md", scene.folder / "script.json"
    epic.write_text(scenario.EPIC, encoding="utf-8")
    script.write_text(json.dumps(scenario.script(modules, options.subtasks), indent=1), encoding="utf-8")
    nodes = options.nodes.read_text(encoding="utf-8") if options.nodes else ""
    scene.fleet.config.write_text(f"{configuration()}{nodes}", encoding="utf-8")
    sandbox = options.sandbox or choose_sandbox()
    more = ["--workers", str(options.workers), "--sandbox", sandbox]
    with scene.fleet.simulated_model(script) as url:
        say(f"a simulated model plays planner and workers at {url}; everything else is real")
        with scene.fleet.run(epic, scene.repository, ["--base-url", url, *more]) as process:
            answers = watch(scene.fleet, process)
    status = scene.fleet.status() or {}
    for line in answers:
        say(f"answered {line}")
    green = prove(scene, status)
    print_next_steps(scene, status)
    code = process.returncode
    return INTERRUPTED if code < 0 else code or (0 if green else 1)


def configuration() -> str:
    """Outside the repository, because it names paths of this machine."""
    prefix = Path(sys.base_prefix)
    lines = ["[checks]", 'gate = "python3 -m tests"', "", "[planner]", "settle_s = 0.5"]
    if not prefix.is_relative_to("/usr"):
        # the box shows /usr; an interpreter elsewhere has to be listed
        lines += ["", "[box]", f"read_only = [{json.dumps(str(prefix))}]"]
    else:
        lines += ["", "[box]"]
    lines += [f"path = [{json.dumps(str(prefix / 'bin'))}]"]
    return "\n".join(lines) + "\n"


def choose_sandbox() -> str:
    """Return bubblewrap if it works, otherwise none with a warning."""
    program = shutil.which("bwrap")
    if program is None:
        why = "bubblewrap is not installed (apt-get install bubblewrap)"
    else:
        probe = [program, "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "true"]
        done = subprocess.run(probe, capture_output=True, text=True, timeout=PROBE_S, check=False)
        if done.returncode == 0:
            return "bubblewrap"
        why = f"bubblewrap does not work on this machine: {done.stderr.strip()[:200]}"
    say(f"NO SANDBOX: {why}. The commands of this demo are harmless, so it continues with --sandbox none.")
    return "none"


def watch(fleet: Fleet, process: subprocess.Popen[bytes], pause: Callable[[float], None] = time.sleep) -> list[str]:
    """Answer the run's questions until it ends. A Ctrl-C is handled by the run, which drains."""
    answered: dict[str, str] = {}
    while process.poll() is None:
        try:
            pause(LOOK_EVERY_S)
            status = fleet.status()
            for question in open_questions(status or {}):
                if question.id in answered or status is None:
                    continue
                text = scenario.ANSWER if question.about == "dialect" else OTHER_ANSWER
                print(f'\ndemo answers question {question.id}: "{question.text}" — {text}', flush=True)
                if fleet.answer(question, text, str(status["run"])):
                    answered[question.id] = f'{question.id}, "{question.text}" — {text}'
        except KeyboardInterrupt:
            continue
    return list(answered.values())


def prove(scene: Scene, status: Mapping[str, Any]) -> bool:
    """Whether the whole specification passes on the result branch, in a fresh clone."""
    branch = status.get("result_branch")
    if not branch:
        say("there is no result branch")
        return False
    clone = scene.folder / "result"
    command = ["git", "clone", "--quiet", "--branch", str(branch), str(scene.repository), str(clone)]
    cloned = subprocess.run(command, env=scene.fleet.environment, capture_output=True, text=True, check=False)
    if cloned.returncode:
        say(f"can't check out {branch}: {cloned.stderr.strip()}")
        return False
    say(f"the whole specification on {branch}, in a fresh clone:")
    tested = subprocess.run(
        [sys.executable, "-m", "tests", "--all"],
        cwd=clone,
        env=scene.fleet.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    for line in [*tested.stderr.strip().splitlines()[-4:], tested.stdout.strip()]:
        if line.strip():
            print(f"  {line}")
    return tested.returncode == 0


def print_next_steps(scene: Scene, status: Mapping[str, Any]) -> None:
    program = shlex.quote(str(Path(sys.executable).with_name("fleet")))
    run = status.get("run", "RUN")
    say("next steps:")
    print(f"  export FLEET_STATE_DIR={shlex.quote(str(scene.fleet.state))}")
    for verb in (f"status {run}", f"show dialect --run {run}", f"logs roman --run {run}", f"diff roman --run {run}"):
        print(f"  {program} {verb}")
    print(f"  git -C {shlex.quote(str(scene.repository))} log --oneline {status.get('result_branch') or 'main'}")


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)
