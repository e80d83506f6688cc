"""How a repository's own commits are made: whether they are signed, and signed off. A hint at what it demands."""

from dataclasses import dataclass

from fleet.core.base.ids import Sha
from worktrees.git.program import Git, text

LATEST = 20  # commits that are looked at
FEWEST = 3  # of fewer, nothing can be said
MOSTLY = 0.9


@dataclass(frozen=True, slots=True)
class Customs:
    """What the latest commits of a repository have in common."""

    commits: int = 0
    signed: int = 0
    signed_off: int = 0

    @property
    def signs(self) -> bool:
        return self._is_usual(self.signed)

    @property
    def signs_off(self) -> bool:
        return self._is_usual(self.signed_off)

    def _is_usual(self, number: int) -> bool:
        return self.commits >= FEWEST and number >= MOSTLY * self.commits


async def customs(git: Git, tip: Sha) -> Customs:
    """The customs of a branch, from the raw text of its latest commits. No signature is verified, no program runs."""
    shas = text(await git("rev-list", f"--max-count={LATEST}", "--no-merges", tip)).split()
    raw = [text(await git("cat-file", "commit", sha)) for sha in shas]
    parts = [commit.partition("\n\n") for commit in raw]
    return Customs(
        commits=len(parts),
        signed=sum("\ngpgsig" in head for head, _, _ in parts),
        signed_off=sum("\nSigned-off-by: " in body for _, _, body in parts),
    )
