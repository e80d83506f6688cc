"""The commits of a result in pieces, each on the one before: one for each area of the plan.

The commits stay in their order within an area. Where areas landed in turns, their commits are put in another order, by
merges without a checkout; areas that do not come apart that way stay together. The last piece always has the tree of
the result.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleet.app.forges.pull_text import Layer
from fleet.core.base.ids import Sha, SubtaskId, run_refs
from fleet.core.state.state import RunState
from fleet.errors import UsageError
from worktrees.git.commit_message import committer_of
from worktrees.store.integrator import StoreIntegrator, landed_since
from worktrees.store.replay import Replay, commits_above
from worktrees.store.store import Store

FLEET = ("fleet", "fleet@localhost")  # the committer of what is put in another order


@dataclass(frozen=True, slots=True)
class Piece:
    """A branch of a remote, and what it brings."""

    branch: str
    commit: Sha
    commits: int
    layer: Layer


@dataclass(frozen=True, slots=True)
class Stacker:
    """The result of a run at `tip`."""

    state: RunState
    store: Store
    tip: Sha

    def whole(self) -> Piece:
        """All of it in one."""
        state = self.state
        return Piece(state.result_branch, self.tip, state.commits, Layer())

    async def pieces(self) -> Sequence[Piece]:
        """One for each area, as far as they come apart."""
        state = self.state
        integrator = StoreIntegrator(self.store, committer_of(*FLEET))
        commits = await commits_above(integrator, state.base, self.tip)
        if commits is None:
            raise UsageError(f"{state.result_branch} has a merge commit", hint="propose it without --stack")
        members = await landed_since(self.store.git, state.run, old=state.base, tip=self.tip)
        subtask_of = {member.commit: member.subtask for member in members}
        groups = _groups([(commit, self._area_of(subtask_of.get(commit))) for commit in commits])
        while True:
            tips = await self._tips(integrator, groups)
            if tips is not None:
                break
            groups = [*groups[:-2], _joined(groups[-2], groups[-1], commits)]
        return self._cut(groups, tips, commits, subtask_of)

    def _area_of(self, subtask: SubtaskId | None) -> SubtaskId | None:
        """The outermost area that a subtask is in."""
        found = None
        while subtask is not None and subtask in self.state.subtasks:
            area = self.state.subtasks[subtask].area
            found = area if area is not None else found
            subtask = area
        return found

    async def _tips(self, integrator: StoreIntegrator, groups: "Sequence[Group]") -> list[Sha] | None:
        """The last commit of each group, each group on the one before; None where they do not fit like that.

        Copies are pinned, so that the same result always gives the same commits.
        """
        tip, tips = self.state.base, list[Sha]()
        for number, group in enumerate(groups, start=1):
            pin = f"{run_refs(self.state.run)}/stack/{self.tip}/{len(groups)}.{number}"
            pinned = await self.store.git.sha(pin)
            if pinned is None:
                replayed = await Replay(integrator).onto(tip, group.commits)
                if replayed.failure is not None:
                    return None
                pinned = replayed.tip
            tips.append(pinned)
            tip = pinned
        repository = integrator.repository
        if (await repository.commit(tip)).tree != (await repository.commit(self.tip)).tree:
            return None if len(groups) > 1 else [self.tip]
        for number, pinned in enumerate(tips, start=1):
            await self.store.git(
                "update-ref", f"{run_refs(self.state.run)}/stack/{self.tip}/{len(tips)}.{number}", pinned
            )
        return tips

    def _cut(
        self,
        groups: "Sequence[Group]",
        tips: Sequence[Sha],
        commits: Sequence[Sha],
        subtask_of: dict[Sha, SubtaskId],
    ) -> list[Piece]:
        state, last = self.state, len(groups)
        if last == 1:
            return [Piece(state.result_branch, self.tip, len(commits), Layer())]
        pieces = []
        for number, (group, tip) in enumerate(zip(groups, tips, strict=True), start=1):
            spec = state.plan.subtask(group.area) if group.area is not None else None
            layer = Layer(
                area=group.area,
                title=spec.title if spec is not None else "What no area did",
                subtasks=frozenset(subtask_of[commit] for commit in group.commits if commit in subtask_of),
                number=number,
                of=last,
                tested=tip in commits or number == last,
            )
            branch = f"{state.result_branch}.{number}-{_word(group.area or 'rest')}"
            pieces.append(Piece(branch, tip, len(group.commits), layer))
        return pieces


@dataclass(frozen=True, slots=True)
class Group:
    """Commits of one area, in the order in which they landed."""

    area: SubtaskId | None
    commits: tuple[Sha, ...]


def _groups(landed: Sequence[tuple[Sha, SubtaskId | None]]) -> list[Group]:
    """Groundwork that landed before any area, then each area, then what no area did."""
    areas = list(dict.fromkeys(area for _, area in landed if area is not None))
    first = next((index for index, (_, area) in enumerate(landed) if area is not None), len(landed))
    ground = tuple(commit for commit, _ in landed[:first])
    rest = tuple(commit for commit, area in landed[first:] if area is None)
    of_area = [Group(area, tuple(commit for commit, its in landed if its == area)) for area in areas]
    return [group for group in (Group(None, ground), *of_area, Group(None, rest)) if group.commits]


def _word(area: SubtaskId) -> str:
    """The name of an area in the name of a branch: no dots, of which git allows only some."""
    return re.sub(r"[^A-Za-z0-9]+", "-", area).strip("-")[:40] or "area"


def _joined(one: Group, other: Group, order: Sequence[Sha]) -> Group:
    both = {*one.commits, *other.commits}
    area = one.area if one.area == other.area else None
    return Group(area, tuple(commit for commit in order if commit in both))
