"""Ruby: RSpec, Minitest, Rake; gems by Bundler."""

from collections.abc import Iterator
from dataclasses import replace

from fleet.recipes.recipe import MAKE_TOOLS, ROOT, TOOLS, Reasoned, Recipe, joined
from fleet.recipes.tree import Tree

GEMS = {"BUNDLE_PATH": Reasoned(f"{ROOT}/{TOOLS}/gems", "where the set-up puts the gems")}
EACH = """ruby -Ilib -Itest -e 'ARGV.each { |file| require File.expand_path(file) }' """


def detect(tree: Tree) -> Iterator[Recipe]:
    tests = tree.matching("test/*_test.rb", "test/test_*.rb")
    if not (tree.has("Gemfile", "Rakefile", ".rspec") or tests or tree.matching("spec/*_spec.rb")):
        return
    for bare in _gates(tree, tests):
        if tree.has("Gemfile") and "gem " in tree.text("Gemfile"):
            yield replace(
                bare,
                gate=f"bundle exec {bare.gate}",
                setup=joined(MAKE_TOOLS, "bundle install --quiet"),
                setup_why="Gemfile names gems",
                needs_network=True,
                environment=GEMS,
            )
        yield bare


def _gates(tree: Tree, tests: tuple[str, ...]) -> Iterator[Recipe]:
    rakefile = tree.text("Rakefile")
    if tree.matching("spec/*_spec.rb") or tree.has(".rspec"):
        yield Recipe("Ruby with RSpec", "rspec", "there are specs below spec")
    if "TestTask" in rakefile or "task :test" in rakefile or "task test" in rakefile:
        yield Recipe("Ruby with Rake", "rake test", "Rakefile has a task 'test'")
    if "task :spec" in rakefile or "RSpec::Core::RakeTask" in rakefile:
        yield Recipe("Ruby with Rake", "rake spec", "Rakefile has a task 'spec'")
    if tree.has("bin/rails"):
        yield Recipe("Ruby on Rails", "ruby bin/rails test", "bin/rails is Rails'")
    if tests:
        yield Recipe(
            "Ruby with Minitest", f"{EACH}$(find test -name '*_test.rb' -o -name 'test_*.rb')", f"{tests[0]} is a test"
        )
