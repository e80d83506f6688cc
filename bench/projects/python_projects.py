# ruff: noqa: E501 - texts of files, most of them on one line
"""Projects in Python: runners, layouts and package managers."""

from bench.projects.project import Project

ADD = "def add(a, b):\n    return a + b\n"
TEST = "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
UNITTEST = (
    "import unittest\n\nfrom calc import add\n\n\nclass TestAdd(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
)
WITH_IDNA = "import idna\n\n\ndef add(a, b):\n    assert idna.encode('x') == b'x'\n    return a + b\n"
BUILD = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n'
PROJECT = '[project]\nname = "calc"\nversion = "1.0"\nrequires-python = ">=3.11"\ndependencies = ["idna"]\n'
HATCH = (
    '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n\n'
    f'{PROJECT}\n[tool.hatch.build.targets.wheel]\npackages = ["src/calc"]\n\n'
    '[tool.hatch.envs.test]\ndependencies = ["pytest"]\n\n[tool.hatch.envs.test.scripts]\nrun = "pytest {args}"\n'
)
POETRY = (
    '[tool.poetry]\nname = "calc"\nversion = "1.0"\ndescription = ""\nauthors = []\npackage-mode = false\n\n'
    '[tool.poetry.dependencies]\npython = "^3.11"\nidna = "*"\n\n[tool.poetry.group.dev.dependencies]\npytest = "*"\n\n'
    '[build-system]\nrequires = ["poetry-core"]\nbuild-backend = "poetry.core.masonry.api"\n'
)
TOX = "[tox]\nskipsdist = true\n\n[testenv]\ndeps =\n    pytest\n    idna\ncommands = pytest {posargs}\n"
NOX = "import nox\n\n\n@nox.session\ndef tests(session):\n    session.install('pytest', 'idna')\n    session.run('pytest')\n"
SETTINGS = (
    "SECRET_KEY = 'test'\nINSTALLED_APPS = ['app']\nUSE_TZ = True\n"
    "DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}\n"
)
MANAGE = (
    "import os\nimport sys\n\nfrom django.core.management import execute_from_command_line\n\n"
    "os.environ.setdefault('DJANGO_SETTINGS_MODULE', 'site_settings')\nexecute_from_command_line(sys.argv)\n"
)
DJANGO_TEST = "from django.test import TestCase\n\n\nclass TestOne(TestCase):\n    def test_one(self):\n        self.assertEqual(1, 1)\n"
IGNORES = {".gitignore": "__pycache__/\n*.egg-info/\n"}

PROJECTS = (
    Project(
        "unittest",
        "Python with unittest",
        {"calc.py": ADD, "tests/__init__.py": "", "tests/test_calc.py": UNITTEST, **IGNORES},
        needs=("python3",),
    ),
    Project(
        "pytest-src",
        "Python with a src layout",
        {
            "pyproject.toml": f'{BUILD}{PROJECT}\n[project.optional-dependencies]\ntest = ["pytest"]\n',
            "src/calc/__init__.py": WITH_IDNA,
            "tests/test_calc.py": TEST,
            **IGNORES,
        },
        needs=("python3",),
        needs_network=True,
    ),
    Project(
        "requirements",
        "Python with requirements files",
        {
            "requirements.txt": "idna\n",
            "requirements-dev.txt": "pytest\n",
            "calc.py": WITH_IDNA,
            "tests/test_calc.py": TEST,
        },
        needs=("python3",),
        needs_network=True,
    ),
    Project(
        "uv",
        "Python with uv",
        {
            "pyproject.toml": f'{PROJECT}\n[dependency-groups]\ndev = ["pytest"]\n',
            "calc.py": WITH_IDNA,
            "tests/test_calc.py": TEST,
        },
        needs=("python3",),
        author=(("uv", "lock", "-q"),),
        tools=("uv",),
        needs_network=True,
    ),
    Project(
        "poetry",
        "Python with Poetry",
        {"pyproject.toml": POETRY, "calc.py": WITH_IDNA, "tests/test_calc.py": TEST},
        needs=("python3",),
        author=(("poetry", "lock", "--no-interaction", "-q"),),
        tools=("poetry",),
        needs_network=True,
    ),
    Project(
        "hatch",
        "Python with Hatch",
        {"pyproject.toml": HATCH, "src/calc/__init__.py": WITH_IDNA, "tests/test_calc.py": TEST},
        needs=("python3",),
        needs_network=True,
    ),
    Project(
        "tox",
        "Python with tox",
        {"tox.ini": TOX, "calc.py": WITH_IDNA, "test_calc.py": TEST},
        needs=("python3",),
        needs_network=True,
    ),
    Project(
        "nox",
        "Python with nox",
        {"noxfile.py": NOX, "calc.py": WITH_IDNA, "test_calc.py": TEST},
        needs=("python3",),
        needs_network=True,
    ),
    Project(
        "django",
        "Python with Django",
        {
            "manage.py": MANAGE,
            "site_settings.py": SETTINGS,
            "requirements.txt": "Django\n",
            "app/__init__.py": "",
            "app/tests.py": DJANGO_TEST,
        },
        needs=("python3",),
        needs_network=True,
    ),
)
