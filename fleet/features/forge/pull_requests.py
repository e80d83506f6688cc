"""`fleet pr`: open a draft pull request, or a stack of them, with the result of a run.

It pushes a branch, finds its pull request by that branch, and opens or updates it. You can repeat a call, also after
it was killed: there is never a second pull request for the same branch.
"""

import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from dashboards.text.formats import listed
from dashboards.text.safe import safe
from fleet.core.base.forges import ForgeKind
from fleet.core.base.ids import Sha, SubtaskId, run_refs
from fleet.core.facts.facts import IssueSource
from fleet.errors import FleetError, UsageError
from fleet.features.forge.forge import NAMES, PREFIXES, Draft, Forge, ForgePlace, Pull, issue_reference, place_of_remote
from fleet.features.forge.program import ForgeError, open_forge, redact
from fleet.features.forge.pulls_view import Done, PullsView, PullView
from fleet.features.parts import load_part
from fleet.features.table import FEATURES, Feature
from fleet.read.report_data import LandedSubtask, ReportData, report_data
from fleet.read.run import RunSnapshot, just_after
from fleet.runs.crash_points import reached
from fleet.runs.journal import Journal
from fleet.runs.run_folder import RunFolder
from worktrees.git.object_format import committer_of, strip_closing_keywords
from worktrees.store.integrator import StoreIntegrator, landed_since
from worktrees.store.replay import Replay, commits_above
from worktrees.store.store import Store, open_store
from worktrees.target.publish import Remote, RemoteMovedError, commit_of, remote_of, remote_urls
from worktrees.target.target import Target, inspect

# ---- pull text -------------------------------------------------------------------------------------------------------
# The text of a pull request: parts of the run's report, and notes for reviewers.
#
# The report's Markdown escapes everything that a model or another person wrote. Tokens and the path of the repository
# on this machine are left out.


TITLE = 120  # characters
LONGEST = 60_000  # characters; GitHub's limit is 65,536
MOST = 40  # subtasks listed by name
PARTS = ("landed", "proof", "human", "review", "cost", "undo")
"""Sections of the report, in the order of a reviewer's questions."""
BEGIN, END = "<!-- fleet:begin -->", "<!-- fleet:end -->"
"""Marks around the generated text. Text that you add before or after them is kept."""


@dataclass(frozen=True, slots=True)
class StackLayer:
    """The part of a result that one pull request proposes."""

    area: SubtaskId | None = None
    """The area of the plan, or None for the full result and for commits outside all areas."""
    title: str = ""
    """The area's title."""
    subtasks: frozenset[SubtaskId] | None = None
    """The subtasks whose commits it contains, or None for all."""
    number: int = 1
    of: int = 1
    tested: bool = True
    """Whether the run tested the tree of its last commit."""


def pull_title(data: ReportData, issue: IssueSource | None, layer: StackLayer) -> str:
    title = issue.title if issue is not None else next(iter(data.goal.strip().splitlines()), "") or f"Run {data.run}"
    if layer.of > 1:
        title = f"{layer.title or 'The rest'} ({layer.number} of {layer.of}: {title})"
    return redact(safe(strip_closing_keywords(title.lstrip("# ")), limit=TITLE))


def pull_body(data: ReportData, issue: IssueSource | None, place: ForgePlace, layer: StackLayer) -> str:
    """Return the generated text, including the marks around it."""
    data = _of_layer(data, layer)
    lead, first = _lead(data, issue, layer), _first(data, layer)
    text = redact(find_proposal()(data, lead=lead, first=first, parts=PARTS))
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}\n\n… The text was cut. For the full report, run `fleet report {data.run}`."
    return "\n\n".join(filter(None, (BEGIN, _closing(data, issue, place, layer), text, END)))


def find_proposal(features: Mapping[str, Feature] = FEATURES) -> Callable[..., str]:
    """Load the function that renders parts of a report as Markdown, from another feature."""
    for feature in features.values():
        if feature.proposes:
            return cast("Callable[..., str]", load_part(feature.proposes))
    raise FleetError("fleet pr requires fleet report, which this installation does not include")


def with_body(existing: str, body: str) -> str:
    """Replace the generated part of a pull request's text, and keep the text around it."""
    before, begin, rest = existing.replace("\r\n", "\n").partition(BEGIN)
    _, end, after = rest.partition(END)
    return f"{before}{body}{after}" if begin and end else body


def _closing(data: ReportData, issue: IssueSource | None, place: ForgePlace, layer: StackLayer) -> str:
    """Return the line that links the issue. Merging closes the issue if the run landed everything."""
    reference = issue_reference(issue.reference) if issue is not None else None
    if issue is None or reference is None:
        return ""
    near = reference.place == place
    name = f"#{reference.number}" if near else f"{reference.place.repo}#{reference.number}"
    if not near and (reference.place.kind, reference.place.host) != (place.kind, place.host):
        return f"For {issue.url}"
    done = data.state == "landed" and layer.number == layer.of
    return f"Closes {name}" if done else f"For {name}"


def _lead(data: ReportData, issue: IssueSource | None, layer: StackLayer) -> Sequence[str]:
    goal = f"Epic: {issue.title} ({issue.reference})" if issue is not None else f"Epic: {data.goal}"
    lead = [safe(goal, limit=1_000)]
    if layer.of > 1:
        lead.append(
            f"This is pull request {layer.number} of {layer.of} in a stack. Each one merges into the previous one."
        )
    if data.simulated:
        lead.append("The model was simulated: answers and prices are scripted. Everything else is real.")
    return lead


def _first(data: ReportData, layer: StackLayer) -> Sequence[str]:
    """Return the notes on what to review first."""
    found: list[str] = []
    if not layer.tested:
        found.append(
            "The run tested these commits in another order and did not test the tree of this branch, so wait for CI. "
            "The last pull request of the stack has the tested tree."
        )
    if again := [part.id for part in data.landed if part.attempts > 1]:
        found.append(f"Subtasks that needed more than one attempt: {listed(again, MOST)}.")
    widest = sorted(data.landed, key=lambda part: -part.files)[:3]
    if len(data.landed) > len(widest):
        files = ", ".join(f"{part.id} ({part.files})" for part in widest)
        found.append(f"Subtasks that changed the most files: {files}.")
    if data.open:
        names = listed([part.id for part in data.open], MOST)
        found.append(f"Subtasks that did not land: {names}. The table below lists the reasons.")
    found.append("This code was not reviewed by a human, unless someone confirms a review in this conversation.")
    return found


def _of_layer(data: ReportData, layer: StackLayer) -> ReportData:
    """Limit the report to the subtasks of one layer. Costs and open subtasks still cover the full run."""
    warnings = [text.replace(data.repository, "the repository") for text in data.warnings]
    data = replace(data, warnings=warnings, repository="")
    if layer.subtasks is None:
        return data
    landed: list[LandedSubtask] = [part for part in data.landed if part.id in layer.subtasks]
    criteria = [each for each in data.proof.criteria if each.subtask in layer.subtasks]
    return replace(data, landed=landed, proof=replace(data.proof, criteria=criteria))


# ---- pull requests ---------------------------------------------------------------------------------------------------


# ---- stack -----------------------------------------------------------------------------------------------------------
# Splits the commits of a result into a stack of pieces, one per area of the plan.
#
# Commits keep their order within an area. If commits of several areas alternate, they are reordered with merges that
# don't need a checkout. Areas whose commits conflict when reordered share a piece. The last piece always has the tree
# of the result.


FLEET = ("fleet", "fleet@localhost")  # the committer of reordered commits


@dataclass(frozen=True, slots=True)
class StackPiece:
    """A branch on the remote and the part of the result that it contains."""

    branch: str
    commit: Sha
    commits: int
    layer: StackLayer


@dataclass(frozen=True, slots=True)
class Stacker:
    """The result of a run at `tip`."""

    run: RunSnapshot
    store: Store
    tip: Sha

    def whole(self) -> StackPiece:
        """Return the full result as one piece."""
        run = self.run
        return StackPiece(run.result.branch, self.tip, run.result.commits, StackLayer())

    async def pieces(self) -> Sequence[StackPiece]:
        """Return a piece per area. Areas that can't be separated share a piece."""
        run = self.run
        integrator = StoreIntegrator(self.store, committer_of(*FLEET))
        commits = await commits_above(integrator, run.base, self.tip)
        if commits is None:
            raise UsageError(f"{run.result.branch} contains a merge commit, so it can't be split", hint="omit --stack")
        members = await landed_since(self.store.git, run.run, old=run.base, tip=self.tip)
        subtask_of = {member.commit: member.subtask for member in members}
        groups = _groups([(commit, self._area_of(subtask_of.get(commit))) for commit in commits])
        while True:
            tips = await self._tips(integrator, groups)
            if tips is not None:
                break
            groups = [*groups[:-2], _join(groups[-2], groups[-1], commits)]
        return self._cut(groups, tips, commits, subtask_of)

    def _area_of(self, subtask: SubtaskId | None) -> SubtaskId | None:
        """Return the outermost area that contains the subtask."""
        found = None
        while subtask is not None and self.run.has_subtask(subtask):
            area = self.run.area_of(subtask)
            found = area if area is not None else found
            subtask = area
        return found

    async def _tips(self, integrator: StoreIntegrator, groups: "Sequence[Group]") -> list[Sha] | None:
        """Stack the groups and return the last commit of each, or None if they conflict in this order.

        The copies are pinned, so the same result always gives the same commits.
        """
        tip, tips = self.run.base, list[Sha]()
        for number, group in enumerate(groups, start=1):
            pin = f"{run_refs(self.run.run)}/stack/{self.tip}/{len(groups)}.{number}"
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
                "update-ref", f"{run_refs(self.run.run)}/stack/{self.tip}/{len(tips)}.{number}", pinned
            )
        return tips

    def _cut(
        self,
        groups: "Sequence[Group]",
        tips: Sequence[Sha],
        commits: Sequence[Sha],
        subtask_of: dict[Sha, SubtaskId],
    ) -> list[StackPiece]:
        run, last = self.run, len(groups)
        if last == 1:
            return [StackPiece(run.result.branch, self.tip, len(commits), StackLayer())]
        pieces = []
        for number, (group, tip) in enumerate(zip(groups, tips, strict=True), start=1):
            spec = run.plan.subtask(group.area) if group.area is not None else None
            layer = StackLayer(
                area=group.area,
                title=spec.title if spec is not None else "Outside all areas",
                subtasks=frozenset(subtask_of[commit] for commit in group.commits if commit in subtask_of),
                number=number,
                of=last,
                tested=tip in commits or number == last,
            )
            branch = f"{run.result.branch}.{number}-{_word(group.area or 'rest')}"
            pieces.append(StackPiece(branch, tip, len(group.commits), layer))
        return pieces


@dataclass(frozen=True, slots=True)
class Group:
    """Commits of one area, in landing order."""

    area: SubtaskId | None
    commits: tuple[Sha, ...]


def _groups(landed: Sequence[tuple[Sha, SubtaskId | None]]) -> list[Group]:
    """Group commits: those that landed before any area, then each area, then the remaining commits."""
    areas = list(dict.fromkeys(area for _, area in landed if area is not None))
    first = next((index for index, (_, area) in enumerate(landed) if area is not None), len(landed))
    ground = tuple(commit for commit, _ in landed[:first])
    rest = tuple(commit for commit, area in landed[first:] if area is None)
    of_area = [Group(area, tuple(commit for commit, its in landed if its == area)) for area in areas]
    return [group for group in (Group(None, ground), *of_area, Group(None, rest)) if group.commits]


def _word(area: str) -> str:
    """Return an area's name for use in a branch name, without dots, because git rejects some of them."""
    return re.sub(r"[^A-Za-z0-9]+", "-", area).strip("-")[:40] or "area"


def _join(one: Group, other: Group, order: Sequence[Sha]) -> Group:
    both = {*one.commits, *other.commits}
    area = one.area if one.area == other.area else None
    return Group(area, tuple(commit for commit in order if commit in both))


# ---- pull requests ---------------------------------------------------------------------------------------------------


USUAL = "origin"
BRANCH = re.compile(r"(?!.*(?:\.\.|//|/\.|\.lock(?:/|$)|[./]$))\w[\w./+@-]{0,200}")
"""A branch name. Options and refspecs don't match."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of `fleet pr`."""

    into: str | None = None
    """The base branch. None selects the run's base branch if the remote has it, else the default branch."""
    remote: str | None = None
    kind: ForgeKind | None = None
    """The forge, if its host name does not identify it."""
    stack: bool = False
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class ForgeTarget:
    """A run, with the remote and forge for its pull requests."""

    run: RunSnapshot
    data: ReportData
    remote: Remote
    forge: Forge

    @property
    def place(self) -> ForgePlace:
        return self.forge.place


@dataclass(frozen=True, slots=True)
class PullRequests:
    """The pull requests of one run."""

    folder: RunFolder
    state_dir: Path
    environ: Mapping[str, str]
    wanted: Wanted = Wanted()
    say: Callable[[str], None] = field(default=lambda _: None)
    """Prints a progress line."""

    async def propose(self) -> PullsView:
        """Push the branches, and open or update their pull requests. Raises `FleetError`."""
        run, data = self._read()
        target = await inspect(Path(run.figures.repository))
        tip = await commit_of(target, run.result.branch)
        store = await open_store(self.state_dir, target, tip, run.base)
        try:
            name, place = await self._place(run, target)
            remote = await remote_of(target, store.git, name, self.environ)
            return await self._propose(ForgeTarget(run, data, remote, open_forge(place, self.environ)), store, tip)
        finally:
            await store.close()

    async def _propose(self, way: ForgeTarget, store: Store, tip: Sha) -> PullsView:
        into = await self._into(way)
        pieces = await self._pieces(way.run, store, tip)
        made, commands, dry = list[PullView](), list[str](), self.wanted.dry_run
        for piece in pieces:
            base = made[-1].branch if made else into
            draft = Draft(
                title=pull_title(way.data, way.run.issue, piece.layer),
                body=pull_body(way.data, way.run.issue, way.place, piece.layer),
                head_branch=piece.branch,
                base_branch=base,
            )
            commands.append(shlex.join(("git", "push", way.remote.name, f"{piece.commit}:refs/heads/{piece.branch}")))
            if not dry:
                await self._push(way.remote, piece)
            made.append(view := await self._pull(way.forge, piece, draft))
            if view.done != "unchanged":
                commands.append(shlex.join((way.place.kind.program, *way.forge.opening(draft))))
        shown = tuple(commands) if dry else ()
        return PullsView(way.run.run, str(way.place), way.remote.name, dry, tuple(made), shown)

    def _read(self) -> tuple[RunSnapshot, ReportData]:
        """Read the run and check that it has a result to propose."""
        run = just_after(self.folder.state())
        if run.relanding is not None:
            raise UsageError(
                f"{run.run} is a re-landing of another run",
                hint=f"open the pull request for that run with `fleet pr {run.relanding.run}`",
            )
        if run.figures.rehearsal:
            raise UsageError(f"{run.run} is a rehearsal, which can't be proposed as a pull request")
        if not run.figures.is_published:
            raise UsageError(
                f"no subtask of {self.folder.run} has landed",
                hint=f"check its progress with `fleet status {self.folder.run}`",
            )
        with Journal(self.folder.journal) as journal:
            data = report_data((fact for _, fact in journal.each()), time.time(), alive=self.folder.alive)
        if data is None:
            raise FleetError(f"{self.folder.run} can't be read")
        return run, data

    async def _pieces(self, run: RunSnapshot, store: Store, tip: Sha) -> Sequence[StackPiece]:
        stacker = Stacker(run, store, tip)
        pieces = await stacker.pieces() if self.wanted.stack else [stacker.whole()]
        if self.wanted.stack and len(pieces) == 1:
            self.say(f"{run.run} does not have separable areas. Opening one pull request")
        return pieces

    # ---- remote and base branch

    async def _place(self, run: RunSnapshot, target: Target) -> tuple[str, ForgePlace]:
        """Choose the remote: the one given, else that of the run's issue, else `origin`, else the first on a forge."""
        urls, named = await remote_urls(target), self.wanted.remote
        if named is not None and named not in urls:
            raise UsageError(
                f"the repository does not have a remote {named!r}",
                hint=f"use one of: {', '.join(urls)}" if urls else f"git remote add {named} URL",
            )
        places = {name: place_of_remote(url, self.wanted.kind) for name, url in urls.items() if named in {None, name}}
        known = {name: place for name, place in places.items() if place is not None}
        issue = issue_reference(run.issue.reference) if run.issue is not None else None
        of_issue = [name for name, place in known.items() if issue is not None and place == issue.place]
        candidates = [*of_issue, *([USUAL] if USUAL in known else []), *known]
        if not candidates:
            known_forges = " or ".join(f"--forge {prefix}" for prefix in PREFIXES)
            hint = f"add one with `git remote add origin URL`, or name the forge of its host with {known_forges}"
            raise UsageError(f"no git remote points to a known {NAMES} host", hint=hint)
        return candidates[0], known[candidates[0]]

    async def _into(self, way: ForgeTarget) -> str:
        """Choose the base branch."""
        wanted, ref = self.wanted.into, f"{run_refs(way.run.run)}/into"
        if wanted is not None:
            if not BRANCH.fullmatch(wanted):
                raise UsageError(f"{wanted!r} is not a valid branch name")
            if await way.remote.fetch(wanted, ref) is None:
                hint = "push it first, or choose another branch with --into BRANCH"
                raise UsageError(f"{way.remote.name} does not have a branch {wanted!r}", hint=hint)
            return wanted
        begun = way.run.base_name
        if BRANCH.fullmatch(begun) and await way.remote.fetch(begun, ref) is not None:
            return begun
        default = await way.forge.default_branch()
        if not BRANCH.fullmatch(default):
            raise UsageError(f"{way.place} does not have a default branch", hint="choose one with --into BRANCH")
        return default

    async def _push(self, remote: Remote, piece: StackPiece) -> None:
        self.say(f"pushing {piece.branch} to {remote.name}")
        try:
            await remote.push(piece.commit, piece.branch)
        except RemoteMovedError:
            hint = f"fetch them with `git fetch {remote.name} {piece.branch}`"
            raise FleetError(
                f"{remote.name} has commits on {piece.branch} that the run does not have", hint=hint
            ) from None

    # ---- pull request

    async def _pull(self, forge: Forge, piece: StackPiece, draft: Draft) -> PullView:
        """Find, open or update the pull request of a branch."""
        pulls = await forge.pulls_of(draft.head_branch)
        pull = next((each for each in pulls if each.state == "open"), None)
        if pull is None:
            over = next((each for each in pulls if each.head_sha == piece.commit), None)
            if over is not None and over.state == "merged":
                return _view(over, "merged", piece, draft)
            if over is not None:
                hint = f"reopen it, or delete the branch {draft.head_branch} on the remote"
                raise FleetError(f"{over.url} was closed without merging", hint=hint)
            if self.wanted.dry_run:
                return _view(None, "to open", piece, draft)
            self.say(f"opening a draft for {draft.head_branch}")
            opened = await self._open(forge, draft)
            reached("a pull request is open, and not recorded")
            return _view(opened, "opened", piece, draft)
        body = with_body(pull.body, draft.body)
        if (pull.body.replace("\r\n", "\n").strip(), pull.base_branch) == (body.strip(), draft.base_branch):
            return _view(pull, "unchanged", piece, draft)
        if self.wanted.dry_run:
            return _view(pull, "to update", piece, draft)
        await forge.edit_pull(pull.number, body=body, base_branch=draft.base_branch)
        return _view(pull, "updated", piece, draft)

    async def _open(self, forge: Forge, draft: Draft) -> Pull:
        """Open it. If the call fails, check whether the pull request was opened anyway."""
        try:
            return await forge.open_pull(draft)
        except ForgeError:
            pulls = await forge.pulls_of(draft.head_branch)
            pull = next((each for each in pulls if each.state == "open"), None)
            if pull is None:
                raise
            return pull


def _view(pull: Pull | None, done: Done, piece: StackPiece, draft: Draft) -> PullView:
    return PullView(
        number=pull.number if pull is not None else None,
        url=redact(safe(pull.url)) if pull is not None else "",
        done=done,
        branch=piece.branch,
        into=draft.base_branch,
        commit=piece.commit,
        commits=piece.commits,
        area=piece.layer.area,
        tested=piece.layer.tested,
        title=draft.title,
        body=draft.body,
    )
