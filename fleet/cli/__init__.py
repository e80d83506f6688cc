"""The command line: the program, its verbs, the screens of a run. May import everything; no other package imports it.

`agents`, `worktrees` and `dashboards` are common names, so fleet's packages must come first. A wheel has them in
`fleet/_packages`, so that they can't conflict with another distribution's. In a checkout they lie next to `fleet`.
Only fleet's programs put that folder first: `import fleet` in another program does not change its imports. Imports
only small modules of the standard library, so that help stays fast.
"""

import os
import sys

OWN = ("agents", "worktrees", "dashboards")
_FLEET = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib costs more than an empty Python


def put_first() -> None:
    """Make imports find fleet's packages first, before PYTHONPATH, the folder and other distributions."""
    packed = os.path.join(_FLEET, "_packages")  # noqa: PTH118
    folder = packed if os.path.isdir(packed) else os.path.dirname(_FLEET)  # noqa: PTH112, PTH120
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    foreign = {name for name in OWN if name in sys.modules and not _is_below(folder, sys.modules[name])}
    for module in [module for module in sys.modules if module.partition(".")[0] in foreign]:
        del sys.modules[module]  # a startup hook of Python has imported another distribution's


def _is_below(folder: str, module: object) -> bool:
    file = getattr(module, "__file__", None) or ""
    return os.path.abspath(file).startswith(folder + os.sep)  # noqa: PTH100


put_first()
