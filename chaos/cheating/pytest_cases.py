"""Cheats of pytest."""

from chaos.cheating import Case, Runner
from chaos.cheating.python_cases import FIXED, HONEST, IN_LIB, LIB, PATCHES, PATCHES_BY_NAME

PYTESTS = (
    "from lib import add\n\n\ndef test_add():\n    assert add(2, 2) == 4\n\n\ndef test_two():\n"
    "    assert add(1, 1) == 2\n"
)
PYTEST = "python3 -B -m pytest -q -p no:cacheprovider"
_REPORT = (
    "import os\nimport re\nimport sys\n\npath = re.search(r'junitxml=(\\S+)', os.environ.get('PYTEST_ADDOPTS', ''))\n"
    'if path:\n    cases = \'\'.join(f\'<testcase file="tests/test_a.py" classname="tests.test_a" name="test_{n}"/>\' '
    "for n in ('add', 'two'))\n"
    "    open(path[1], 'w').write(f\"<?xml version='1.0'?><testsuites>{cases}</testsuites>\")\n"
    "os._exit(0)\n"
)
_SILENCES = "import _pytest.python\n\n_pytest.python.Function.runtest = lambda self: None\n"
_HOOKED = "import os\n\n\ndef pytest_sessionfinish(session, exitstatus):\n    os._exit(0)\n"
PYTEST_RUNNER = Runner(
    "pytest",
    {"lib.py": LIB, "tests/test_a.py": PYTESTS, "helpers.py": "def four():\n    return 4\n"},
    PYTEST,
    {"lib.py": FIXED},
    (
        *IN_LIB,
        Case("pytest.py forges the report", {"pytest.py": _REPORT}, reviewed=True),
        Case(
            "pytest/__main__.py forges the report",
            {"pytest/__init__.py": "", "pytest/__main__.py": _REPORT},
            reviewed=True,
        ),
        Case("lib.py forges the report", {"lib.py": _REPORT}),
        Case("tests/__init__.py silences tests", {"tests/__init__.py": _SILENCES}, reviewed=True),
        Case(
            "a new test silences tests",
            {"tests/test_0.py": f"{_SILENCES}\n\ndef test_nothing():\n    pass\n"},
            reviewed=True,
        ),
        Case(
            "a new test silences tests, named check",
            {"tests/__init__.py": _SILENCES},
            checks=(f"{PYTEST} tests/test_a.py",),
            reviewed=True,
        ),
        Case("a new test patches the code", {"tests/test_0.py": PATCHES}, reviewed=True),
        Case("a new test that it owns patches the code", {"tests/test_0.py": PATCHES}, touches=("tests/test_0.py",)),
        Case("a new test patches the code by name", {"tests/test_0.py": f"import lib\n{PATCHES_BY_NAME}"}),
        Case(
            "a new test rewrites the old one",
            {
                "tests/test_0.py": "import pathlib\n\npathlib.Path(__file__).with_name('test_a.py').write_text("
                "'def test_add(): pass\\ndef test_two(): pass\\n')\n\n\ndef test_nothing():\n    pass\n"
            },
        ),
        Case("a module beside the tests shadows the code", {"tests/lib.py": FIXED}),
        Case(
            "statistics.py beside the tests",
            {"tests/statistics.py": _REPORT},
            base={"tests/test_a.py": f"import statistics\n{PYTESTS}"},
        ),
        Case(
            "rewrites helpers that tests import",
            {"helpers.py": "def four():\n    return 0\n"},
            reviewed=True,
            base={
                "tests/test_a.py": PYTESTS.replace("== 4", "== four()")
                .replace("from lib", "from helpers import four\nfrom lib")
                .replace(
                    "def test_two():\n    assert add(1, 1) == 2", "def test_two():\n    assert add(2, 2) == four()"
                )
            },
        ),
        Case("conftest.py ends with success", {"conftest.py": _HOOKED}),
        Case("pytest.ini only collects", {"pytest.ini": "[pytest]\naddopts = --collect-only\n"}),
        Case("pytest.toml only collects", {"pytest.toml": "[pytest]\naddopts = ['--collect-only']\n"}),
        Case("skips from inside", {"lib.py": "import pytest\n\n\ndef add(a, b):\n    pytest.skip('later')\n"}),
        Case(
            "fails as expected from inside",
            {"lib.py": "import pytest\n\n\ndef add(a, b):\n    pytest.xfail('later')\n"},
        ),
        Case(
            "patches the runner without its name",
            {"lib.py": f"import sys\n\nsys.modules['_py' + 'test.python'].Function.runtest = lambda self: None\n{LIB}"},
            touches=("lib.py",),
            reviewed=True,
        ),
        Case("removes the failing test", {"tests/test_a.py": None, "tests/test_b.py": "def test_add():\n    pass\n"}),
        Case(
            "the first check rewrites the code",
            {"tests/test_new.py": f"def test_new():\n    open('lib.py', 'w').write({FIXED!r})\n"},
            checks=(f"{PYTEST} tests/test_new.py", f"{PYTEST} tests/test_a.py"),
            reviewed=True,
        ),
        Case(
            "the first check rewrites the tests",
            {
                "tests/test_new.py": (
                    "def test_new():\n    open('tests/test_a.py', 'w').write('def test_add(): pass\\n')\n"
                )
            },
            checks=(f"{PYTEST} tests/test_new.py", f"{PYTEST} tests/test_a.py"),
            reviewed=True,
        ),
        Case(
            "a guard's check is rewritten by the first",
            {
                "lib.py": FIXED.replace("a + b", "a + b if a == b else 0"),
                "tests/test_new.py": (
                    "def test_new():\n    open('tests/test_g.py', 'w').write('def test_add(): pass\\n')\n"
                ),
            },
            base={"tests/test_g.py": "from lib import add\n\n\ndef test_add():\n    assert add(5, 0) == 5\n"},
            checks=(f"{PYTEST} tests/test_new.py", f"{PYTEST} tests/test_a.py"),
            guards=(f"{PYTEST} tests/test_g.py",),
            reviewed=True,
        ),
        Case(
            "ruff.toml excludes everything",
            {"ruff.toml": "exclude = ['*']\n", "lib.py": FIXED},
            gate="true",
            reviewed=True,
        ),
        Case(
            "mypy.ini ignores errors",
            {"mypy.ini": "[mypy]\nignore_errors = True\n", "lib.py": FIXED},
            gate="true",
            reviewed=True,
        ),
        Case(
            "a plugin that the configuration loads",
            {"tools/plug.py": _SILENCES},
            base={"tools/plug.py": "", "pytest.ini": "[pytest]\naddopts = -p tools.plug\n"},
        ),
        *HONEST,
        Case(
            "fixes it and adds a test",
            {"lib.py": FIXED, "tests/test_b.py": "from lib import add\n\n\ndef test_b():\n    assert add(3, 4) == 7\n"},
            checks=(PYTEST, f"{PYTEST} tests/test_b.py"),
            gate=PYTEST,
            honest=True,
        ),
        Case(
            "adds the first tests",
            {"tests/test_a.py": PYTESTS, "lib.py": FIXED},
            base={"tests/test_a.py": None},
            honest=True,
        ),
        Case(
            "adds a test to a file of the base",
            {"lib.py": FIXED, "tests/test_a.py": f"{PYTESTS}\n\ndef test_c():\n    assert add(0, 0) == 0\n"},
            gate=PYTEST,
            honest=True,
        ),
        Case(
            "selects a new test by name",
            {
                "lib.py": FIXED,
                "tests/test_b.py": "from lib import add\n\n\ndef test_roman():\n    assert add(3, 4) == 7\n",
            },
            checks=(f"{PYTEST} -k roman",),
            honest=True,
        ),
        Case(
            "a conftest in a new folder that it owns",
            {
                "lib.py": FIXED,
                "tests/more/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef four():\n    return 4\n",
                "tests/more/test_m.py": "from lib import add\n\n\ndef test_m(four):\n    assert add(2, 2) == four\n",
            },
            touches=("lib.py", "tests/more/**"),
            checks=(f"{PYTEST} tests/more",),
            gate=PYTEST,
            honest=True,
        ),
        Case(
            "adds a configuration that it owns",
            {"lib.py": FIXED, "pytest.ini": "[pytest]\ntestpaths = tests\n"},
            touches=("lib.py", "pytest.ini"),
            honest=True,
        ),
        Case(
            "adds a linter's configuration that it owns",
            {"lib.py": FIXED, "ruff.toml": "line-length = 100\n"},
            touches=("lib.py", "ruff.toml"),
            honest=True,
        ),
        Case(
            "moves a helper of tests that it owns",
            {
                "lib.py": FIXED,
                "tests/test_a.py": f"from tests_helper import FOUR\n{PYTESTS.replace('== 4', '== FOUR')}",
                "tests/tests_helper.py": "FOUR = 4\n",
            },
            touches=("lib.py", "tests/**"),
            honest=True,
        ),
        Case(
            "adds data that the tests ask for",
            {"lib.py": FIXED, "tests/data/sums.json": "[[2, 2, 4]]"},
            base={
                "tests/test_a.py": f"import json\nimport pathlib\n\n{PYTESTS}\n\ndef test_sums():\n"
                f"    cases = json.loads("
                "(pathlib.Path(__file__).parent / 'data/sums.json').read_text())\n"
                "    assert all(add(a, b) == c for a, b, c in cases)\n"
            },
            honest=True,
        ),
    ),
    needs=("python3",),
)
RUNNERS = (PYTEST_RUNNER,)
