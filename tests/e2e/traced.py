"""Runs `fleet` and writes down which of its functions were called, and how deep: traced.py FILE ARGUMENT…"""

import json
import os
import runpy
import sys
import threading
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

ROOT = f"{Path(__file__).parents[2]}/"
PACKAGES = tuple(f"{ROOT}{name}/" for name in ("fleet", "agents", "worktrees", "dashboards"))


class Trace:
    """The functions of the product that were called. The body of a class or module is none."""

    def __init__(self) -> None:
        self.calls: Counter[CodeType] = Counter()
        self.deepest: list[str] = []
        self._ours: dict[CodeType, bool] = {}

    def take(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self._is_ours(frame.f_code):
            self.calls[frame.f_code] += 1
            if self.calls[frame.f_code] == 1:
                self._measure(frame)

    def _is_ours(self, code: CodeType) -> bool:
        if (known := self._ours.get(code)) is None:
            known = code.co_filename.startswith(PACKAGES) and bool(code.co_flags & CO_OPTIMIZED)
            self._ours[code] = known
        return known

    def _measure(self, frame: FrameType | None) -> None:
        """Keep the stack if it is the deepest. A function is looked at when it is called first."""
        stack: list[str] = []
        while frame is not None:
            if self._is_ours(frame.f_code):
                stack.append(_name(frame.f_code))
            frame = frame.f_back
        if len(stack) > len(self.deepest):
            self.deepest = stack[::-1]

    def document(self) -> dict[str, object]:
        return {"calls": {_name(code): number for code, number in self.calls.items()}, "deepest": self.deepest}


def _name(code: CodeType) -> str:
    """`fleet.engine.loop:record`."""
    module = code.co_filename.removeprefix(ROOT).removesuffix(".py").removesuffix("/__init__")
    return f"{module.replace('/', '.')}:{code.co_name}"


def main() -> None:
    file, sys.argv = Path(sys.argv[1]), ["fleet", *sys.argv[2:]]
    trace, first = Trace(), os.getpid()
    threading.setprofile(trace.take)
    sys.setprofile(trace.take)
    try:
        runpy.run_module("fleet", run_name="__main__")
    finally:
        sys.setprofile(None)
        if os.getpid() == first:  # a fork of it has seen a part only
            file.write_text(json.dumps(trace.document()))


if __name__ == "__main__":
    main()
