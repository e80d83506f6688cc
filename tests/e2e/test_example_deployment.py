"""The deployment that is shown to newcomers: what it says of itself is looked at by itself, in the cluster's folder."""

import sys
from pathlib import Path

import pytest

from tests.e2e.stage import Stage

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[1] / "examples" / "deployment"


def test_the_plan_is_the_one_that_was_printed() -> None:
    assert (EXAMPLE / "plan.json").read_bytes() == (HERE / "deployment.json").read_bytes()


@pytest.mark.parametrize("scene", ["good", "tests", "deploy", "reject"])
def test_each_scene_comes_out_as_it_is_told(scene: str, stage: Stage) -> None:
    stage.run([sys.executable, str(EXAMPLE / "deployment.py"), scene]).ended(0).says("✔")


def test_a_scene_that_is_none_is_refused(stage: Stage) -> None:
    stage.run([sys.executable, str(EXAMPLE / "deployment.py"), "goood"]).ended(2).says("there is no scene goood")
