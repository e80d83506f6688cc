"""The deployment example for newcomers: each scene checks its own claims in the cluster's folder."""

import sys
from pathlib import Path

import pytest

from tests.e2e.stage import Stage

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "deployment"


def test_the_plan_is_the_one_that_was_printed() -> None:
    assert (EXAMPLE / "plan.json").read_bytes() == (HERE / "deployment.json").read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize("scene", ["good", "tests", "deploy", "reject"])
def test_each_scene_ends_as_described(scene: str, stage: Stage) -> None:
    stage.run([sys.executable, str(EXAMPLE / "deployment.py"), scene]).ended(0).says("✔")


def test_a_scene_that_is_none_is_refused(stage: Stage) -> None:
    stage.run([sys.executable, str(EXAMPLE / "deployment.py"), "goood"]).ended(2).says("unknown scene goood")
