"""What `gh` prints, as far as it is read: a model for each answer. Unknown fields are left out."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from fleet.forge.forge import CheckState, Comment, Pull, PullState


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
    """A run of a check, or a status of a commit: they have different fields."""

    type_: str = Field("CheckRun", alias="__typename")
    name: str = ""
    context: str = ""
    status: str = ""
    conclusion: str | None = None
    state: str = ""
    details_url: str | None = Field(None, alias="detailsUrl")
    target_url: str | None = Field(None, alias="targetUrl")
    workflow: str | None = Field(None, alias="workflowName")


class Checks(_Answer):
    head_sha: str = Field(alias="headRefOid")
    rollup: tuple[CheckAnswer, ...] | None = Field(None, alias="statusCheckRollup")


class Branch(_Answer):
    name: str = ""


class RepositoryAnswer(_Answer):
    default_branch: Branch = Field(alias="defaultBranchRef")
    permission: str = Field("", alias="viewerPermission")


class Permission(_Answer):
    permission: str


class PageInfo(_Answer):
    has_next: bool = Field(alias="hasNextPage")
    cursor: str | None = Field(None, alias="endCursor")


class Nodes(_Answer):
    nodes: tuple[CommentAnswer, ...] = ()


class ThreadAnswer(_Answer):
    id: str
    path: str = ""
    line: int | None = None
    resolved: bool = Field(alias="isResolved")
    outdated: bool = Field(default=False, alias="isOutdated")
    comments: Nodes


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
    viewer: Account | None = None


class GraphQl(_Answer):
    data: Data | None = None


class Limit(_Answer):
    remaining: int
    reset: float


class Limits(_Answer):
    resources: dict[str, Limit]


ISSUE, PULL, PULLS = TypeAdapter(IssueAnswer), TypeAdapter(PullAnswer), TypeAdapter(tuple[PullAnswer, ...])
CHECKS, REPOSITORY = TypeAdapter(Checks), TypeAdapter(RepositoryAnswer)
PERMISSION, LIMITS, GRAPHQL = TypeAdapter(Permission), TypeAdapter(Limits), TypeAdapter(GraphQl)
CHECK_STATES: dict[str, CheckState] = {
    **dict.fromkeys(("SUCCESS", "NEUTRAL"), "passed"),
    "SKIPPED": "skipped",
    **dict.fromkeys(("FAILURE", "ERROR", "TIMED_OUT", "CANCELLED", "ACTION_REQUIRED", "STARTUP_FAILURE"), "failed"),
}
