"""The research crew that is shown to newcomers: each scene looks at its own result, in git."""

import sys
from pathlib import Path

import pytest

from tests.e2e.stage import Stage

EXAMPLE = Path(__file__).parents[2] / "examples" / "research" / "research.py"


@pytest.mark.thorough
@pytest.mark.parametrize("scene", ["question", "competitors"])
def test_each_scene_ends_as_described(scene: str, stage: Stage) -> None:
    done = stage.run([sys.executable, str(EXAMPLE), scene]).ended(0).says("✔", "simulated model")
    done.says(
        {"question": "contract required", "competitors": "Read A's pricing page: not done: page not found"}[scene]
    )
