"""The GitHub client. It calls the user's `gh`, version 2.23 or newer, and passes texts on standard input."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fleet.features.forge.forge import (
    Check,
    CheckState,
    Comment,
    Draft,
    ForgePlace,
    Issue,
    Pull,
    PullState,
    Thread,
    pull_reference,
)
from fleet.features.forge.program import ForgeError, NotFoundError, Program, RateLimitedError

# ---- github answers --------------------------------------------------------------------------------------------------
# Models of the JSON output of `gh`. Unknown fields are ignored.


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Account(_Answer):
    login: str = ""


class Label(_Answer):
    name: str


class CommentAnswer(_Answer):
    id: str
    author: Account | None = None
    body: str
    created_at: str = Field("", alias="createdAt")
    mine: bool = Field(default=False, alias="viewerDidAuthor")

    def value(self) -> Comment:
        author = self.author.login if self.author is not None else ""
        return Comment(id=self.id, author=author, body=self.body, created_at=self.created_at, is_mine=self.mine)


class IssueAnswer(_Answer):
    number: int
    title: str
    body: str | None = None
    url: str
    state: str
    author: Account | None = None
    labels: tuple[Label, ...] = ()
    comments: tuple[CommentAnswer, ...] = ()


class PullAnswer(_Answer):
    number: int
    url: str
    title: str
    body: str | None = None
    state: Literal["OPEN", "CLOSED", "MERGED"]
    is_draft: bool = Field(alias="isDraft")
    head_branch: str = Field(alias="headRefName")
    head_sha: str = Field(alias="headRefOid")
    base_branch: str = Field(alias="baseRefName")
    author: Account | None = None
    labels: tuple[Label, ...] = ()
    cross: bool = Field(default=False, alias="isCrossRepository")

    def value(self) -> Pull:
        states: dict[str, PullState] = {"OPEN": "open", "CLOSED": "closed", "MERGED": "merged"}
        return Pull(
            number=self.number,
            url=self.url,
            title=self.title,
            body=self.body or "",
            state=states[self.state],
            is_draft=self.is_draft,
            head_branch=self.head_branch,
            head_sha=self.head_sha,
            base_branch=self.base_branch,
            author=self.author.login if self.author is not None else "",
            labels=tuple(label.name for label in self.labels),
            is_cross_repository=self.cross,
        )


class CheckAnswer(_Answer):
    """A check run or a commit status, which have different fields."""

    type_: str = Field("CheckRun", alias="__typename")
    name: str = ""
    context: str = ""
    status: str = ""
    conclusion: str | None = None
    state: str = ""
    details_url: str | None = Field(None, alias="detailsUrl")
    target_url: str | None = Field(None, alias="targetUrl")
    workflow: str | None = Field(None, alias="workflowName")


class CheckRollup(_Answer):
    head_sha: str = Field(alias="headRefOid")
    rollup: tuple[CheckAnswer, ...] | None = Field(None, alias="statusCheckRollup")


class Branch(_Answer):
    name: str = ""


class RepositoryAnswer(_Answer):
    default_branch: Branch = Field(alias="defaultBranchRef")


class Permission(_Answer):
    permission: str


class PageInfo(_Answer):
    has_next: bool = Field(alias="hasNextPage")
    cursor: str | None = Field(None, alias="endCursor")


class GraphQlNodes(_Answer):
    nodes: tuple[CommentAnswer, ...] = ()


class ThreadAnswer(_Answer):
    id: str
    path: str = ""
    line: int | None = None
    resolved: bool = Field(alias="isResolved")
    outdated: bool = Field(default=False, alias="isOutdated")
    comments: GraphQlNodes


class ThreadPage(_Answer):
    page: PageInfo = Field(alias="pageInfo")
    nodes: tuple[ThreadAnswer, ...]


class CommentPage(_Answer):
    page: PageInfo = Field(alias="pageInfo")
    nodes: tuple[CommentAnswer, ...]


class PullLists(_Answer):
    threads: ThreadPage | None = Field(None, alias="reviewThreads")
    comments: CommentPage | None = None
    reviews: CommentPage | None = None


class RepositoryNode(_Answer):
    pull: PullLists | None = Field(None, alias="pullRequest")


class Data(_Answer):
    repository: RepositoryNode | None = None


class GraphQl(_Answer):
    data: Data | None = None


class Limit(_Answer):
    remaining: int
    reset: float


class ApiLimits(_Answer):
    resources: dict[str, Limit]


ISSUE, PULL, PULLS = TypeAdapter(IssueAnswer), TypeAdapter(PullAnswer), TypeAdapter(tuple[PullAnswer, ...])
CHECKS, REPOSITORY = TypeAdapter(CheckRollup), TypeAdapter(RepositoryAnswer)
PERMISSION, LIMITS, GRAPHQL = TypeAdapter(Permission), TypeAdapter(ApiLimits), TypeAdapter(GraphQl)
CHECK_STATES: dict[str, CheckState] = {
    **dict.fromkeys(("SUCCESS", "NEUTRAL"), "passed"),
    "SKIPPED": "skipped",
    **dict.fromkeys(("FAILURE", "ERROR", "TIMED_OUT", "CANCELLED", "ACTION_REQUIRED", "STARTUP_FAILURE"), "failed"),
}


# ---- github ----------------------------------------------------------------------------------------------------------


PAGE = 100  # the maximum page size of GraphQL
MOST_PAGES = 20  # pages per listing, or 2,000 threads
LOG_CHARACTERS = 60_000  # the end of a log

PULL_FIELDS = "number,url,title,body,state,isDraft,headRefName,headRefOid,baseRefName,author,labels,isCrossRepository"
ISSUE_FIELDS = "number,title,body,url,state,author,labels,comments"

_COMMENT_FIELDS = "id body createdAt viewerDidAuthor author { login }"
THREADS = f"""
query($owner: String!, $name: String!, $number: Int!, $after: String) {{
  repository(owner: $owner, name: $name) {{ pullRequest(number: $number) {{
    reviewThreads(first: {PAGE}, after: $after) {{
      pageInfo {{ hasNextPage endCursor }}
      nodes {{ id path line isResolved isOutdated comments(first: {PAGE}) {{ nodes {{ {_COMMENT_FIELDS} }} }} }}
    }}
  }} }}
}}"""
_TALK = """
query($owner: String!, $name: String!, $number: Int!, $after: String) {{
  repository(owner: $owner, name: $name) {{ pullRequest(number: $number) {{
    {name}(first: {page}, after: $after) {{
      pageInfo {{ hasNextPage endCursor }}
      nodes {{ {fields} }}
    }}
  }} }}
}}"""
COMMENTS = _TALK.format(name="comments", page=PAGE, fields=_COMMENT_FIELDS)
REVIEWS = _TALK.format(name="reviews", page=PAGE, fields=_COMMENT_FIELDS)
REPLY = """
mutation($thread: ID!, $body: String!) {
  addPullRequestReviewThreadReply(input: {pullRequestReviewThreadId: $thread, body: $body}) { comment { id } }
}"""

_JOB = re.compile(r"/actions/runs/\d+/job/(\d+)")
_STAMP = re.compile(r"^\ufeff?\d{4}-\d\d-\d\dT[\d:.]+Z ?")

Parsed = TypeVar("Parsed")


@dataclass(frozen=True, slots=True)
class GitHub:
    """A repository on GitHub."""

    program: Program

    @property
    def place(self) -> ForgePlace:
        return self.program.place

    async def default_branch(self) -> str:
        answer = await self._read(REPOSITORY, "repo", "view", self._argument, "--json", "defaultBranchRef")
        return answer.default_branch.name

    async def may_write(self, account: str) -> bool:
        path = f"repos/{self.place.repo}/collaborators/{quote(account, safe='')}/permission"
        try:
            answer = await self._read(PERMISSION, "api", *self._host, path)
        except NotFoundError:
            return False
        return answer.permission in {"admin", "write"}

    async def issue(self, number: int) -> Issue:
        answer = await self._read(ISSUE, "issue", "view", str(number), *self._repo, "--json", ISSUE_FIELDS)
        return Issue(
            number=answer.number,
            title=answer.title,
            body=answer.body or "",
            url=answer.url,
            author=answer.author.login if answer.author is not None else "",
            is_open=answer.state == "OPEN",
            labels=tuple(label.name for label in answer.labels),
            comments=tuple(comment.value() for comment in answer.comments),
        )

    async def pull(self, number: int) -> Pull:
        return (await self._read(PULL, "pr", "view", str(number), *self._repo, "--json", PULL_FIELDS)).value()

    async def pulls_of(self, head_branch: str) -> tuple[Pull, ...]:
        answer = await self._read(
            PULLS,
            *("pr", "list", *self._repo, f"--head={head_branch}", "--state=all", "--limit=100"),
            *("--json", PULL_FIELDS),
        )
        pulls = [each.value() for each in answer if each.head_branch == head_branch and not each.cross]
        return tuple(sorted(pulls, key=lambda pull: -pull.number))

    def opening(self, draft: Draft) -> tuple[str, ...]:
        """Return the arguments that open a pull request. Its text goes to standard input."""
        return (
            *("pr", "create", *self._repo, "--draft", f"--base={draft.base_branch}", f"--head={draft.head_branch}"),
            *(f"--title={draft.title}", "--body-file", "-"),
        )

    async def open_pull(self, draft: Draft) -> Pull:
        printed = await self._ask(*self.opening(draft), data=draft.body)
        found = next(filter(None, map(pull_reference, reversed(printed.split()))), None)
        if found is None:
            raise ForgeError("gh pr create did not print the URL of the pull request")
        return await self.pull(found.number)

    async def edit_pull(self, number: int, *, body: str, base_branch: str) -> None:
        """Edit it through the API: `gh pr edit` also queries classic projects, which makes GitHub return an error."""
        fields = {"body": body, "base": base_branch}
        path = f"repos/{self.place.repo}/pulls/{number}"
        await self._ask("api", *self._host, "--method=PATCH", "--input", "-", path, data=json.dumps(fields))

    async def checks(self, pull: Pull) -> tuple[Check, ...]:
        answer = await self._read(
            CHECKS, "pr", "view", str(pull.number), *self._repo, "--json", "headRefOid,statusCheckRollup"
        )
        return tuple(_check(each, answer.head_sha) for each in answer.rollup or ())

    async def log(self, check: Check) -> str:
        if not check.job:
            return ""
        text = await self._ask("run", "view", *self._repo, f"--job={check.job}", "--log-failed")
        lines = [_STAMP.sub("", line.split("\t", 2)[-1]) for line in text.splitlines()]
        return "\n".join(lines)[-LOG_CHARACTERS:]

    async def threads(self, number: int) -> tuple[Thread, ...]:
        found: list[Thread] = []
        async for lists in self._pages(THREADS, number):
            if lists.threads is not None:
                found += map(_thread, lists.threads.nodes)
        return tuple(found)

    async def comments(self, number: int) -> tuple[Comment, ...]:
        found: list[Comment] = []
        for query in (COMMENTS, REVIEWS):
            async for lists in self._pages(query, number):
                for page in filter(None, (lists.comments, lists.reviews)):
                    found += (comment.value() for comment in page.nodes if comment.body)
        return tuple(sorted(found, key=lambda comment: comment.created_at))

    async def comment(self, number: int, body: str, *, thread: str = "") -> None:
        if thread:
            await self._graphql(REPLY, {"thread": thread, "body": body})
            return
        await self._ask("pr", "comment", str(number), *self._repo, "--body-file", "-", data=body)

    # ---- calls ------------------------------------------------------------------------------------------------------

    @property
    def _argument(self) -> str:
        return f"{self.place.host}/{self.place.repo}"

    @property
    def _repo(self) -> tuple[str, str]:
        return "--repo", self._argument

    @property
    def _host(self) -> tuple[str, str]:
        return "--hostname", self.place.host

    async def _pages(self, query: str, number: int) -> AsyncIterator[PullLists]:
        owner, name = self.place.repo.split("/")
        after: str | None = None
        for _ in range(MOST_PAGES):
            data = await self._graphql(query, {"owner": owner, "name": name, "number": number, "after": after})
            pull = data.repository.pull if data.repository is not None else None
            if pull is None:
                raise NotFoundError(f"{self.place} does not have a pull request {number}")
            yield pull
            page = next((each.page for each in (pull.threads, pull.comments, pull.reviews) if each is not None), None)
            if page is None or not page.has_next or page.cursor is None:
                return
            after = page.cursor

    async def _graphql(self, query: str, variables: Mapping[str, object]) -> Data:
        body = json.dumps({"query": query, "variables": variables})
        answer = await self._read(GRAPHQL, "api", "graphql", *self._host, "--method=POST", "--input", "-", data=body)
        return answer.data if answer.data is not None else Data()

    async def _read(self, kind: TypeAdapter[Parsed], *arguments: str, data: str = "") -> Parsed:
        try:
            return await self.program.read(kind, *arguments, data=data.encode())
        except RateLimitedError as limited:
            raise await self._with_reset(limited) from None

    async def _ask(self, *arguments: str, data: str = "") -> str:
        try:
            return await self.program.ask(*arguments, data=data.encode())
        except RateLimitedError as limited:
            raise await self._with_reset(limited) from None

    async def _with_reset(self, limited: RateLimitedError) -> RateLimitedError:
        """Add the reset time to a rate limit error. The call does not count against the limit."""
        try:
            limits = await self.program.read(LIMITS, "api", "rate_limit", *self._host)
        except ForgeError:
            return limited
        spent = [limit.reset for limit in limits.resources.values() if limit.remaining == 0]
        return RateLimitedError(limited.message, retry_at=max(spent, default=None), hint=limited.hint)


def _check(check: CheckAnswer, sha: str) -> Check:
    link = check.details_url or check.target_url or ""
    job = _JOB.search(link)
    if check.type_ == "StatusContext":
        state = CHECK_STATES.get(check.state, "pending")
    else:
        state = CHECK_STATES.get(check.conclusion or "", "pending") if check.status == "COMPLETED" else "pending"
    name = f"{check.workflow} / {check.name}" if check.workflow else check.name or check.context
    return Check(name=name, state=state, link=link, sha=sha, job=job[1] if job is not None else "")


def _thread(thread: ThreadAnswer) -> Thread:
    return Thread(
        id=thread.id,
        path=thread.path,
        line=thread.line,
        is_resolved=thread.resolved,
        is_outdated=thread.outdated,
        comments=tuple(comment.value() for comment in thread.comments.nodes),
    )
