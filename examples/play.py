"""What examples share: scenes that are played one after the other, and say what they found."""

import sys
from collections.abc import Callable, Mapping, Sequence


class Wrong(Exception):  # noqa: N818 - it is an outcome
    """Something did not come out as the example says it does."""


def expect(true: bool, what: str) -> None:
    """Say what holds; raises `Wrong` where it does not."""
    if not true:
        raise Wrong(f"not so: {what}")
    print(f"  ✔ {what}", flush=True)


def play(scenes: Mapping[str, Callable[[], None]], chosen: Sequence[str]) -> int:
    """Play the chosen scenes, or all; returns the exit code."""
    if unknown := set(chosen) - set(scenes):
        print(f"there is no scene {', '.join(sorted(unknown))}; there are {', '.join(scenes)}", file=sys.stderr)
        return 2
    for name in chosen or scenes:
        print(f"\n=== {name}: {scenes[name].__doc__}\n", flush=True)
        try:
            scenes[name]()
        except Wrong as wrong:
            print(f"example: {wrong}", file=sys.stderr)
            return 1
    return 0
