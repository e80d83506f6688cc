"""PHP: PHPUnit, Pest, scripts of Composer."""

from collections.abc import Iterator
from dataclasses import replace

from fleet.recipes.recipe import Recipe, joined
from fleet.recipes.tree import Tree, table

INSTALL = "COMPOSER_HOME=/tmp/composer composer install --no-interaction --no-progress --quiet"
OWN_IGNORE = "echo '*' > vendor/.gitignore"


def detect(tree: Tree) -> Iterator[Recipe]:
    composer = tree.json("composer.json")
    if not composer and not tree.has("phpunit.xml", "phpunit.xml.dist"):
        return
    needs = {**table(composer, "require"), **table(composer, "require-dev")}
    packages = [name for name in needs if "/" in name]
    for bare in _gates(tree, composer, packages):
        if packages and not tree.has("vendor/autoload.php"):
            why = "composer.json names packages"
            yield replace(bare, setup=joined(INSTALL, OWN_IGNORE), setup_why=why, needs_network=True)
        else:
            autoload = bool(table(composer, "autoload")) and not tree.has("vendor/autoload.php")
            setup = joined("COMPOSER_HOME=/tmp/composer composer dump-autoload --quiet", OWN_IGNORE) if autoload else ""
            yield replace(bare, setup=setup, setup_why="writes the autoloader" if autoload else "")


def _gates(tree: Tree, composer: dict[str, object], packages: list[str]) -> Iterator[Recipe]:
    if "test" in table(composer, "scripts"):
        yield Recipe(
            "PHP with Composer", "COMPOSER_HOME=/tmp/composer composer test", "composer.json has a script 'test'"
        )
    if "pestphp/pest" in packages:
        yield Recipe("PHP with Pest", "php vendor/bin/pest", "composer.json requires Pest")
    if "phpunit/phpunit" in packages:
        yield Recipe("PHP with PHPUnit", "php vendor/bin/phpunit", "composer.json requires PHPUnit")
    elif name := tree.first("phpunit.xml", "phpunit.xml.dist"):
        yield Recipe("PHP with PHPUnit", "phpunit", f"{name} is PHPUnit's")
    elif tree.matching("tests/*Test.php"):
        yield Recipe("PHP with PHPUnit", "phpunit tests", "there are tests below tests")
