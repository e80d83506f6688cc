"""Shared by the examples: scenes that are played one after another, with checks of their results."""

import sys
from collections.abc import Callable, Mapping, Sequence


class SceneError(Exception):
    """A scene did not end as expected."""


def expect(true: bool, what: str) -> None:
    """Print what holds. Raises `SceneError` if it does not."""
    if not true:
        raise SceneError(f"expectation not met: {what}")
    print(f"  ✔ {what}", flush=True)


def play(scenes: Mapping[str, Callable[[], None]], chosen: Sequence[str]) -> int:
    """Play the chosen scenes, or all, and return the exit code."""
    if unknown := set(chosen) - set(scenes):
        print(f"unknown scene {', '.join(sorted(unknown))}; the scenes are {', '.join(scenes)}", file=sys.stderr)
        return 2
    for name in chosen or scenes:
        print(f"\n=== {name}: {scenes[name].__doc__}\n", flush=True)
        try:
            scenes[name]()
        except SceneError as error:
            print(f"example: {error}", file=sys.stderr)
            return 1
    return 0
