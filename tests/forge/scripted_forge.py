"""A forge in a folder: what `gh` and `glab` of ours answer from, and what people do there while a test goes on.

The state is one JSON file under a lock, heads are branches of a real bare repository, and a check is green when a file
at the head has a text. `log` holds every call. A fault is consumed by the first calls whose arguments it matches.
"""

import fcntl
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parents[2]
FOLDER = "FLEET_SCRIPTED_FORGE"
"""The variable that leads `gh` and `glab` to the folder."""
OWNER, NAME, ME = "acme", "shop", "fleet-bot"
FaultKind = Literal[
    "rate_limit",  # refused, with a reset that `gh api rate_limit` tells
    "secondary_rate_limit",  # refused, "wait a few minutes"
    "network",  # the forge can't be reached
    "server",  # HTTP 502
    "not_logged_in",
    "slow",  # the answer takes `seconds`
    "dies_before",  # killed before anything happened
    "dies_after",  # killed when it had happened, before anything was printed
    "cut",  # half of the answer, and an exit code of 0
    "push",  # a person pushes to the branch `branch` just before the answer
    "force_push",  # the same, from the base, without what was there
]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScriptedForge:
    """The folder of a forge."""

    folder: Path

    @staticmethod
    def create(folder: Path, repository: Path, *, gh_version: str = "2.62.0") -> "ScriptedForge":
        """A forge whose repository begins as a copy of `repository`'s branches."""
        folder.mkdir(parents=True)
        forge = ScriptedForge(folder)
        _git(folder, "clone", "--quiet", "--bare", str(repository), "remote.git")
        state: Json = {
            "gh_version": gh_version,
            "me": ME,
            "people": {ME: "write", "ann": "admin", "bob": "write", "eve": "read", "mallory": "none"},
            "issues": {},
            "pulls": {},
            "ci": [],
            "runs": {},
            "faults": [],
            "clock": 0,
            "next": 1,
        }
        (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
        forge._put_programs()
        return forge

    @property
    def remote(self) -> Path:
        return self.folder / "remote.git"

    @property
    def programs(self) -> Path:
        return self.folder / "bin"

    def environment(self) -> dict[str, str]:
        """What makes `gh` and `glab` ours, for the programs of a test."""
        return {"PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}", FOLDER: str(self.folder)}

    def _put_programs(self) -> None:
        self.programs.mkdir()
        for name in ("gh", "glab"):
            text = f"#!{sys.executable} -B\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
            text += f"from tests.forge.{name} import main\nmain()\n"
            path = self.programs / name
            path.write_text(text, encoding="utf-8")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    # ---- the state

    @contextmanager
    def changing(self) -> Iterator[Json]:
        """The state, for one caller at a time; kept when the block ends."""
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = self.folder / "state.json"
            state: Json = json.loads(path.read_text(encoding="utf-8"))
            yield state
            whole = self.folder / "state.new"
            whole.write_text(json.dumps(state), encoding="utf-8")
            whole.replace(path)

    def state(self) -> Json:
        with self.changing() as state:
            return state

    def pull(self, number: int) -> Json:
        pull: Json = self.state()["pulls"][str(number)]
        return pull

    def calls(self) -> list[list[str]]:
        """The arguments of every call, the program first."""
        log = self.folder / "calls.jsonl"
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []

    # ---- what people do

    def add_issue(self, title: str, body: str = "", *, author: str = "ann", labels: tuple[str, ...] = ()) -> int:
        with self.changing() as state:
            number = new_number(state)
            state["issues"][str(number)] = {
                "number": number,
                "title": title,
                "body": body,
                "author": author,
                "labels": list(labels),
                "state": "open",
                "comments": [],
                "at": tick(state),
            }
            return number

    def add_pull(self, head: str, title: str = "A change", body: str = "", *, base: str = "main", **more: Any) -> int:
        """A pull request whose head is a branch of the remote."""
        with self.changing() as state:
            return open_pull(state, title=title, body=body, base=base, head=head, **more)

    def add_thread(
        self, number: int, path: str, line: int | None, body: str, *, author: str = "ann", outdated: bool = False
    ) -> str:
        with self.changing() as state:
            pull = state["pulls"][str(number)]
            thread = f"PRRT_{new_id(state)}"
            pull["threads"].append(
                {
                    "id": thread,
                    "path": path,
                    "line": None if outdated else line,
                    "original_line": line,
                    "outdated": outdated,
                    "resolved": False,
                    "comments": [note(state, author, body)],
                }
            )
            return thread

    def answer_thread(self, number: int, thread: str, body: str, *, author: str = "ann") -> None:
        with self.changing() as state:
            found = next(each for each in state["pulls"][str(number)]["threads"] if each["id"] == thread)
            found["comments"].append(note(state, author, body))

    def resolve(self, number: int, thread: str) -> None:
        with self.changing() as state:
            next(each for each in state["pulls"][str(number)]["threads"] if each["id"] == thread)["resolved"] = True

    def comment(self, number: int, body: str, *, author: str = "ann") -> None:
        with self.changing() as state:
            place = state["pulls"].get(str(number)) or state["issues"][str(number)]
            place["comments"].append(note(state, author, body))

    def add_review(self, number: int, body: str, *, author: str = "ann", state: str = "CHANGES_REQUESTED") -> None:
        """What a review says as a whole, apart from its threads."""
        with self.changing() as all_of_it:
            found = {**note(all_of_it, author, body), "state": state}
            all_of_it["pulls"][str(number)]["reviews"].append(found)

    def add_label(self, number: int, label: str) -> None:
        with self.changing() as state:
            state["pulls"][str(number)]["labels"].append(label)

    def remove_label(self, number: int, label: str) -> None:
        with self.changing() as state:
            state["pulls"][str(number)]["labels"].remove(label)

    def close(self, number: int, *, merged: bool = False) -> None:
        with self.changing() as state:
            state["pulls"][str(number)]["state"] = "merged" if merged else "closed"

    def push(self, branch: str, path: str, text: str, *, onto: str | None = None, author: str = "Ann") -> str:
        """A person commits one file on a branch; with `onto`, from there and by force."""
        return commit_file(self.remote, branch, path, text, onto=onto, author=author)

    def add_check(
        self, name: str, path: str, text: str, *, log: str = "", pull: int | None = None, pending: int = 0
    ) -> None:
        """A check of CI: green when `path` at the head contains `text`, pending for so many looks at each head."""
        rule = {"name": name, "path": path, "text": text, "log": log, "pull": pull, "pending": pending}
        with self.changing() as state:
            state["ci"].append(rule)

    def add_fault(self, kind: FaultKind, on: str, *, times: int = 1, skip: int = 0, **more: Any) -> None:
        """Let the next calls whose arguments or input match the expression go wrong, after `skip` that do not."""
        with self.changing() as state:
            state["faults"].append({"kind": kind, "on": on, "times": times, "skip": skip, **more})

    # ---- what became of it

    def head(self, branch: str) -> str:
        return _git(self.remote, "rev-parse", f"refs/heads/{branch}")

    def file(self, branch: str, path: str) -> str:
        return _git(self.remote, "show", f"refs/heads/{branch}:{path}")

    def comments_of(self, number: int, author: str = ME) -> list[str]:
        """What someone wrote below a pull request, outside of its threads."""
        return [each["body"] for each in self.pull(number)["comments"] if each["author"] == author]

    def replies_of(self, number: int, author: str = ME) -> dict[str, list[str]]:
        """What someone wrote in each thread."""
        return {
            thread["id"]: [each["body"] for each in thread["comments"] if each["author"] == author]
            for thread in self.pull(number)["threads"]
        }


# ---- changes of the state, inside the lock ---------------------------------------------------------------------------


def tick(state: Json) -> str:
    """The time of the next thing: a second after the last one."""
    state["clock"] += 1
    seconds = state["clock"]
    return f"2026-11-02T{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}Z"


def new_number(state: Json) -> int:
    state["next"] += 1
    number: int = state["next"] - 1
    return number


def new_id(state: Json) -> int:
    return 1000 + new_number(state)


def note(state: Json, author: str, body: str) -> Json:
    return {"id": new_id(state), "author": author, "body": body, "at": tick(state)}


def open_pull(state: Json, *, title: str, body: str, base: str, head: str, **more: Any) -> int:
    number = new_number(state)
    state["pulls"][str(number)] = {
        "number": number,
        "title": title,
        "body": body,
        "base": base,
        "head": head,
        "state": "open",
        "draft": False,
        "labels": [],
        "author": ME,
        "comments": [],
        "threads": [],
        "reviews": [],
        "cross": False,
        "at": tick(state),
        **more,
    }
    return number


def take_fault(state: Json, text: str) -> Json | None:
    """The fault of a call with these arguments, one time less."""
    for fault in state["faults"]:
        if fault["times"] > 0 and re.search(fault["on"], text, re.DOTALL):
            if fault["skip"] > 0:
                fault["skip"] -= 1
                continue
            fault["times"] -= 1
            taken: Json = fault
            return taken
    return None


# ---- the remote ------------------------------------------------------------------------------------------------------


def head_of(remote: Path, branch: str) -> str:
    """The commit of a branch; empty if there is none."""
    return _git(remote, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", ok=False)


def text_at(remote: Path, commit: str, path: str) -> str:
    return _git(remote, "show", f"{commit}:{path}", ok=False)


def commit_file(remote: Path, branch: str, path: str, text: str, *, onto: str | None, author: str = "Ann") -> str:
    """One commit with one file, made in the remote itself."""
    parent = _git(remote, "rev-parse", onto if onto is not None else f"refs/heads/{branch}")
    blob = _git(remote, "hash-object", "-w", "--stdin", feed=text)
    index = {"GIT_INDEX_FILE": str(remote / f"index.{os.getpid()}")}
    _git(remote, "read-tree", parent, more=index)
    _git(remote, "update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", more=index)
    tree = _git(remote, "write-tree", more=index)
    Path(index["GIT_INDEX_FILE"]).unlink()
    commit = _git(remote, "commit-tree", tree, "-p", parent, "-m", f"{path}: by {author}")
    _git(remote, "update-ref", f"refs/heads/{branch}", commit)
    return commit


def _git(at: Path, *args: str, ok: bool = True, feed: str | None = None, more: Json | None = None) -> str:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "Ann",
        "GIT_AUTHOR_EMAIL": "ann@example.org",
        "GIT_COMMITTER_NAME": "Ann",
        "GIT_COMMITTER_EMAIL": "ann@example.org",
        **(more or {}),
    }
    done = subprocess.run(
        ["git", *args],
        cwd=at,
        env=environment,
        input=feed,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    assert done.returncode == 0 or not ok, done.stderr
    return done.stdout.strip() if done.returncode == 0 else ""
