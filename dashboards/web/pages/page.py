"""What a page is made of, and what all pages know."""

from collections.abc import Mapping
from dataclasses import dataclass

from jinja2 import Environment
from markupsafe import Markup

from dashboards.runs.needs import needs
from dashboards.runs.run_follower import FollowedRun
from dashboards.web.followed import FollowedRuns


class NoSuchPageError(Exception):
    """There is no page at this address; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A page as it is now."""

    title: str
    parts: Mapping[str, Markup]
    """By the id of the element that holds it."""
    is_live: bool = True
    """Whether it changes by itself, with time or with the run."""


@dataclass(frozen=True, slots=True)
class Reader:
    """What pages are made from, for one reader."""

    runs: FollowedRuns
    templates: Environment
    may_decide: bool
    query: Mapping[str, str]
    at: int | None = None
    """The place of the fact at which a run is shown; None: as it is now."""

    @property
    def then(self) -> str:
        """What links to other pages of the run end with, so that they show the same moment."""
        return f"?at={self.at}" if self.at is not None else ""

    def part(self, name: str, **values: object) -> Markup:
        """The part that a template draws."""
        template = self.templates.get_template(f"parts/{name}.html")
        moment = {"then": self.then, "and_then": self.then.replace("?", "&")}
        return Markup(template.render(may_decide=self.may_decide, **moment, **values))  # noqa: S704 - it escapes

    def waiting(self) -> int:
        """How many things wait for a person, in all runs."""
        return sum(len(needs(run)) for run in self.runs.latest())


def repository_name(run: FollowedRun) -> str:
    return run.state.repository.rstrip("/").rpartition("/")[2] if run.state is not None else ""
