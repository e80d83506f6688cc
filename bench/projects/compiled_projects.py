# ruff: noqa: E501 - texts of files, most of them on one line
"""Projects in compiled languages, with Debian packages and with tool chains in the home directory."""

from bench.projects.project import Project

ADD_C = "int add(int a, int b) { return a + b; }\n"
TEST_C = "int add(int a, int b);\nint main(void) { return add(1, 2) == 3 ? 0 : 1; }\n"
LIB_RS = "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n\n#[test]\nfn adds() {\n    assert_eq!(add(1, 2), 3);\n}\n"
ADD_GO = "package calc\n\nfunc Add(a, b int) int { return a + b }\n"
TEST_GO = 'package calc\n\nimport "testing"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal("wrong")\n\t}\n}\n'
CMAKE = "cmake_minimum_required(VERSION 3.16)\nproject(calc C)\nenable_testing()\nadd_executable(t add.c t.c)\nadd_test(NAME t COMMAND t)\n"
MESON = "project('calc', 'c')\ntest('t', executable('t', 'add.c', 't.c'))\n"
CONFIGURE = "AC_INIT([calc], [1.0])\nAM_INIT_AUTOMAKE([foreign])\nAC_PROG_CC\nAC_CONFIG_FILES([Makefile])\nAC_OUTPUT\n"
AUTOMAKE = "check_PROGRAMS = t\nt_SOURCES = add.c t.c\nTESTS = t\n"
MAKE_C = "CFLAGS = -Wall\n\nt: add.c t.c\n\t$(CC) $(CFLAGS) -o $@ $^\n\n.PHONY: test clean\ntest: t\n\t./t\n\nclean:\n\trm -f t\n"
MAKE_JAVA = "test:\n\tmkdir -p out && javac -d out Add.java && java -ea -cp out Add\n"
ADD_JAVA = "public class Add {\n  public static void main(String[] args) {\n    assert 1 + 2 == 3;\n  }\n}\n"
GRADLE = "apply plugin: 'java'\n\ntask check1(type: JavaExec, dependsOn: classes) {\n  main = 'Add'\n  classpath = sourceSets.main.runtimeClasspath\n}\ntest.dependsOn check1\n"
MIX = (
    "defmodule Calc.MixProject do\n  use Mix.Project\n\n  def project do\n"
    '    [app: :calc, version: "1.0.0", elixir: "~> 1.10", deps: []]\n  end\nend\n'
)
ADD_EX = "defmodule Calc do\n  def add(a, b), do: a + b\nend\n"
TEST_EX = 'defmodule CalcTest do\n  use ExUnit.Case\n\n  test "adds" do\n    assert Calc.add(1, 2) == 3\n  end\nend\n'

PROJECTS = (
    Project(
        "cargo",
        "Rust with cargo",
        {
            "Cargo.toml": '[package]\nname = "calc"\nversion = "1.0.0"\nedition = "2021"\n',
            "src/lib.rs": LIB_RS,
            ".gitignore": "/target\n",
        },
        needs=("cargo",),
    ),
    Project(
        "cargo-workspace",
        "a Rust workspace",
        {
            "Cargo.toml": '[workspace]\nresolver = "2"\nmembers = ["one", "two"]\n',
            "one/Cargo.toml": '[package]\nname = "one"\nversion = "1.0.0"\nedition = "2021"\n',
            "one/src/lib.rs": LIB_RS,
            "two/Cargo.toml": '[package]\nname = "two"\nversion = "1.0.0"\nedition = "2021"\n\n[dependencies]\none = { path = "../one" }\n',
            "two/src/lib.rs": LIB_RS,
            ".gitignore": "/target\n",
        },
        needs=("cargo",),
    ),
    Project(
        "go",
        "Go",
        {"go.mod": "module example.test/calc\n\ngo 1.19\n", "add.go": ADD_GO, "add_test.go": TEST_GO},
        needs=("go",),
    ),
    Project(
        "go-workspace",
        "a Go workspace",
        {
            "go.work": "go 1.19\n\nuse (\n\t./one\n\t./two\n)\n",
            **{f"{name}/go.mod": f"module example.test/{name}\n\ngo 1.19\n" for name in ("one", "two")},
            **{f"{name}/add.go": ADD_GO for name in ("one", "two")},
            **{f"{name}/add_test.go": TEST_GO for name in ("one", "two")},
        },
        needs=("go",),
    ),
    Project("cmake", "C with CMake", {"CMakeLists.txt": CMAKE, "add.c": ADD_C, "t.c": TEST_C}, needs=("cmake", "gcc")),
    Project("meson", "C with Meson", {"meson.build": MESON, "add.c": ADD_C, "t.c": TEST_C}, needs=("meson", "gcc")),
    Project(
        "autotools",
        "C with autotools",
        {"configure.ac": CONFIGURE, "Makefile.am": AUTOMAKE, "add.c": ADD_C, "t.c": TEST_C},
        needs=("autoreconf", "automake", "gcc"),
    ),
    Project(
        "make-c",
        "C with make",
        {"Makefile": MAKE_C, "add.c": ADD_C, "t.c": TEST_C, ".gitignore": "t\n"},
        needs=("make", "gcc"),
    ),
    Project(
        "make-java",
        "Java with make",
        {"Makefile": MAKE_JAVA, "Add.java": ADD_JAVA, ".gitignore": "out/\n"},
        needs=("javac", "make"),
    ),
    Project(
        "gradle",
        "Java with Gradle",
        {"build.gradle": GRADLE, "src/main/java/Add.java": ADD_JAVA, ".gitignore": ".gradle/\nbuild/\n"},
        needs=("gradle", "javac"),
    ),
    Project(
        "mix",
        "Elixir",
        {
            "mix.exs": MIX,
            "lib/calc.ex": ADD_EX,
            "test/test_helper.exs": "ExUnit.start()\n",
            "test/calc_test.exs": TEST_EX,
            ".gitignore": "_build/\n",
        },
        needs=("mix",),
    ),
)
