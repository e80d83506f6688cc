"""The command line: the program, its verbs, the screens of a run. May import everything; nothing else imports it.

Our packages come before those of others: `agents`, `worktrees` and `dashboards` are common names. In a wheel they lie
in `fleet/_packages`, where no other distribution can overwrite them and none is overwritten; in a checkout they lie
beside `fleet`. Only our own programs put that folder first, so that `import fleet` in somebody else's program changes
nothing there. Imports nothing but the standard library's smallest, so that help is fast.
"""

import os
import sys

OWN = ("agents", "worktrees", "dashboards")
_FLEET = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib costs more than an empty Python


def put_first() -> None:
    """Make imports find our packages, whatever the folder, PYTHONPATH or another distribution offers."""
    packed = os.path.join(_FLEET, "_packages")  # noqa: PTH118
    folder = packed if os.path.isdir(packed) else os.path.dirname(_FLEET)  # noqa: PTH112, PTH120
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    foreign = {name for name in OWN if name in sys.modules and not _is_below(folder, sys.modules[name])}
    for module in [module for module in sys.modules if module.partition(".")[0] in foreign]:
        del sys.modules[module]  # something that starts with Python imported another distribution's


def _is_below(folder: str, module: object) -> bool:
    file = getattr(module, "__file__", None) or ""
    return os.path.abspath(file).startswith(folder + os.sep)  # noqa: PTH100


put_first()
