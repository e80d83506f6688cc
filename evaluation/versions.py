"""Versions of the prompts: those of this tree, of a folder, or of a commit of this repository.

A run with a version is a copy of the program of this tree with other files in `agents/prompts`: so the tree may change
while an evaluation takes its hours.
"""

import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from pathlib import Path

from fleet.core.base.ids import did_you_mean
from fleet.errors import UsageError

ROOT = Path(__file__).resolve().parents[1]
PROMPTS = Path("agents", "prompts")
THIS_TREE = "this-tree"
PACKAGES = ("fleet", "agents", "worktrees", "dashboards")
LONGEST = 200_000  # characters of a prompt


@dataclass(frozen=True, slots=True)
class Version:
    """The prompts of one version."""

    name: str
    prompts: Mapping[str, str]
    """By file name."""

    @property
    def digest(self) -> str:
        digest = blake2b(digest_size=6)
        for name, text in sorted(self.prompts.items()):
            digest.update(f"{name}\0{text}\0".encode())
        return digest.hexdigest()


@cache
def our_prompts() -> Mapping[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / PROMPTS).glob("*.md"))}


def read_version(name: str) -> Version:
    """The version that a person names. Raises `UsageError`."""
    if name == THIS_TREE:
        return Version(name, our_prompts())
    folder = Path(name)
    return Version(name, _from_folder(folder) if folder.is_dir() else _from_commit(name))


def _from_folder(folder: Path) -> Mapping[str, str]:
    """A folder may hold only the prompts that differ."""
    found = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
    if not found:
        raise UsageError(f"{folder} has no prompts; add files such as planner.md (missing prompts keep their default)")
    for name, path in found.items():
        if name not in our_prompts():
            raise UsageError(f"{path}: unknown prompt name{did_you_mean(name, our_prompts())}")
    try:
        texts = {name: path.read_text(encoding="utf-8") for name, path in found.items()}
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read prompts from {folder}: {error}") from None
    for name, text in texts.items():
        if len(text) > LONGEST:
            raise UsageError(f"{folder / name} has {len(text):,} characters; at most {LONGEST:,} are allowed")
    return {**our_prompts(), **texts}


def _from_commit(name: str) -> Mapping[str, str]:
    commit = _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    if commit is None:
        raise UsageError(
            f"{name!r} is neither a directory with prompts nor a commit of {ROOT} (`{THIS_TREE}`: checked out)"
        )
    texts = {each: _git("show", f"{commit.strip()}:{PROMPTS.as_posix()}/{each}") for each in our_prompts()}
    return {each: text if text is not None else our_prompts()[each] for each, text in texts.items()}


def _git(*arguments: str) -> str | None:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def program_with(version: Version, folder: Path) -> Path:
    """A folder from which `python -m fleet` runs with the prompts of this version."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "config.toml", folder)
    for name, text in version.prompts.items():
        (folder / PROMPTS / name).write_text(text, encoding="utf-8")
    return folder
