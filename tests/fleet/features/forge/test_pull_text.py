"""The title of a pull request, which becomes the message of a commit where it is squashed."""

import pytest

from fleet.core.facts.facts import IssueSource
from fleet.errors import FleetError
from fleet.features.forge.pull_requests import StackLayer, find_proposal, pull_title
from fleet.read.report_data import report_data
from tests.fleet.core.story import Story


def test_a_title_closes_no_issue() -> None:
    story = Story()
    data = report_data(story.facts, story.now, alive=False)
    assert data is not None
    title = pull_title(data, None, StackLayer(title="Schema, fixes #7", number=1, of=2))
    assert title.startswith("Schema, fixes (see #7) (1 of 2: ")
    issue = IssueSource(
        reference="gh:acme/shop#3", title="Closes #8 at last", url="https://github.com/acme/shop/issues/3"
    )
    assert pull_title(data, issue, StackLayer()) == "Closes (see #8) at last"


def test_without_the_feature_of_reports_there_is_no_text_to_propose() -> None:
    with pytest.raises(FleetError, match="requires fleet report"):
        find_proposal({})
