"""The research crew that is shown to newcomers: each scene looks at its own result, in git."""

import sys
from pathlib import Path

import pytest

from tests.e2e.stage import Stage

EXAMPLE = Path(__file__).parents[2] / "examples" / "research" / "research.py"


@pytest.mark.parametrize("scene", ["question", "competitors"])
def test_each_scene_comes_out_as_it_is_told(scene: str, stage: Stage) -> None:
    said = stage.run([sys.executable, str(EXAMPLE), scene]).ended(0).says("✔", "simulated model")
    said.says(
        {"question": "only with a contract", "competitors": "Read A's pricing page: not done: page not found"}[scene]
    )
