# ruff: noqa: E501 - texts of files, most of them on one line
"""Projects in scripting languages, projects of several kinds, and projects that need files or variables."""

import json

from bench.projects.project import Project
from bench.projects.python_projects import ADD, UNITTEST
from bench.projects.web_projects import NODE_TEST, package

RAKEFILE = "require 'rake/testtask'\n\nRake::TestTask.new do |task|\n  task.pattern = 'test/*_test.rb'\nend\n"
TEST_RB = "require 'minitest/autorun'\n\nclass AddTest < Minitest::Test\n  def test_add\n    assert_equal 3, 1 + 2\n  end\nend\n"
PHPUNIT = '<?xml version="1.0"?>\n<phpunit bootstrap="vendor/autoload.php">\n  <testsuites><testsuite name="all"><directory>tests</directory></testsuite></testsuites>\n</phpunit>\n'
ADD_PHP = "<?php\nnamespace Calc;\n\nclass Calc\n{\n    public static function add(int $a, int $b): int\n    {\n        return $a + $b;\n    }\n}\n"
TEST_PHP = "<?php\nuse PHPUnit\\Framework\\TestCase;\n\nfinal class CalcTest extends TestCase\n{\n    public function testAdd(): void\n    {\n        $this->assertSame(3, Calc\\Calc::add(1, 2));\n    }\n}\n"
TEST_PL = "use strict;\nuse Test::More tests => 1;\nuse Calc;\nis(Calc::add(1, 2), 3, 'adds');\n"
ADD_PM = "package Calc;\nsub add { return $_[0] + $_[1] }\n1;\n"
TEST_TCL = "package require tcltest\nnamespace import tcltest::*\ntest add-1 {adds} {expr {1 + 2}} 3\ncleanupTests\n"
JUSTFILE = 'set shell := ["bash", "-c"]\n\n# run the tests\ntest:\n    python3 -m unittest discover -s tests -t .\n'
TEST_ENV = "import os\nimport unittest\n\n\nclass TestEnv(unittest.TestCase):\n    def test_env(self):\n        self.assertTrue(os.environ['DATABASE_URL'])\n"
TEST_DOTENV = "#!/bin/sh\ntest -f .env || { echo 'there is no .env' >&2; exit 1; }\ngrep -q DATABASE_URL .env\n"
TEST_DATA = "#!/bin/sh\ntest -s data/words.txt || { echo 'data/words.txt is missing' >&2; exit 1; }\n"
CI = "jobs:\n  test:\n    steps:\n      - uses: actions/checkout@v4\n      - run: sh ./ci/all-tests.sh --quick\n"

PROJECTS = (
    Project("rake", "Ruby with Rake", {"Rakefile": RAKEFILE, "test/add_test.rb": TEST_RB}, needs=("ruby", "rake")),
    Project(
        "phpunit",
        "PHP with PHPUnit",
        {
            "composer.json": json.dumps({"name": "a/calc", "autoload": {"psr-4": {"Calc\\": "src/"}}}),
            "phpunit.xml": PHPUNIT,
            "src/Calc.php": ADD_PHP,
            "tests/CalcTest.php": TEST_PHP,
            ".gitignore": "vendor/\n",
        },
        needs=("php", "composer", "phpunit"),
    ),
    Project("perl", "Perl", {"lib/Calc.pm": ADD_PM, "t/calc.t": TEST_PL}, needs=("perl", "prove")),
    Project("tcl", "Tcl", {"tests/all.tcl": TEST_TCL}, needs=("tclsh",)),
    Project(
        "just",
        "just",
        {"justfile": JUSTFILE, "calc.py": ADD, "tests/__init__.py": "", "tests/test_calc.py": UNITTEST},
        needs=("python3",),
    ),
    Project(
        "script",
        "a script",
        {"run_tests.sh": "#!/bin/sh\nset -e\ntest $((1 + 2)) = 3\necho '1 passed'\n"},
        needs=("sh",),
    ),
    Project(
        "ci-only",
        "a command that only CI names",
        {".github/workflows/ci.yml": CI, "ci/all-tests.sh": 'test "$1" = --quick\n'},
        needs=("sh",),
    ),
    Project(
        "monorepo",
        "a monorepo of Python, Node and C",
        {
            "api/calc.py": ADD,
            "api/setup.cfg": "[metadata]\nname = calc\n",
            "api/requirements.txt": "idna\n",
            "api/tests/__init__.py": "",
            "api/tests/test_calc.py": UNITTEST,
            "web/package.json": package(name="web", type="module", scripts={"test": "node --test"}),
            "web/add.test.js": NODE_TEST,
            "native/Makefile": "test:\n\techo 'int main(void) { return 0; }' > t.c && $(CC) -o t t.c && ./t\n",
            ".gitignore": "t\nt.c\n",
        },
        needs=("python3", "node", "npm", "gcc"),
        needs_network=True,
    ),
    Project(
        "env-example",
        "a project that needs variables",
        {
            ".env.example": "DATABASE_URL=sqlite://\n",
            "tests/__init__.py": "",
            "tests/test_env.py": TEST_ENV,
            ".gitignore": ".env\n",
        },
        needs=("python3",),
    ),
    Project(
        "dotenv",
        "a project that needs an .env file",
        {".env.example": "DATABASE_URL=sqlite://\n", "test.sh": TEST_DOTENV, ".gitignore": ".env\n"},
        needs=("sh",),
    ),
    Project(
        "ignored-data",
        "a project that needs data which git ignores",
        {"Makefile": "test:\n\tsh check.sh\n", "check.sh": TEST_DATA, ".gitignore": "data/\n"},
        needs=("make",),
        beside={"data/words.txt": "one\n"},
    ),
)
