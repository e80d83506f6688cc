"""Java and Kotlin: Maven and Gradle with or without their wrappers; sbt."""

from collections.abc import Iterator

from fleet.recipes.recipe import MAKE_TOOLS, ROOT, TOOLS, Reasoned, Recipe, joined
from fleet.recipes.tree import Tree

GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
PLACE = f"{ROOT}/{TOOLS}"


def detect(tree: Tree) -> Iterator[Recipe]:
    language = "Kotlin" if tree.matching("*.kt") else "Java"
    if tree.has("pom.xml"):
        program, why = ("sh ./mvnw", "mvnw is Maven's wrapper") if tree.has("mvnw") else ("mvn", "pom.xml is Maven's")
        local = f"{program} -B -q -Dmaven.repo.local={PLACE}/m2"
        yield Recipe(
            f"{language} with Maven",
            f"{local} -o test",
            why,
            setup=joined(MAKE_TOOLS, f"{{ {local} test || true; }}"),
            setup_why="runs the tests once, so that Maven fetches everything that they need",
            needs_network=True,
            environment={"MAVEN_USER_HOME": Reasoned(f"{PLACE}/maven", "where the wrapper puts Maven itself")},
        )
        yield Recipe(f"{language} with Maven", f"{program} -B -q -o test", why)
    if tree.has(*GRADLE):
        has_wrapper = tree.has("gradlew")
        program = "sh ./gradlew" if has_wrapper else "gradle"
        why = "gradlew is Gradle's wrapper" if has_wrapper else f"{tree.first(*GRADLE)} is Gradle's"
        home = {"GRADLE_USER_HOME": Reasoned(f"{PLACE}/gradle", "where Gradle keeps what it fetched")}
        fetch = Recipe(
            f"{language} with Gradle",
            f"{program} --no-daemon --offline test",
            why,
            setup=joined(MAKE_TOOLS, f"{{ {program} --no-daemon test || true; }}"),
            setup_why="runs the tests once, so that Gradle fetches everything that they need",
            needs_network=True,
            environment=home,
        )
        build = "".join(map(tree.text, tree.matching("*build.gradle", "*build.gradle.kts")))
        if not has_wrapper and not any(word in build for word in ("mavenCentral", "google()", "jcenter", "https://")):
            yield Recipe(fetch.kind, fetch.gate, why)
        yield fetch
    if tree.has("build.sbt"):
        yield Recipe("Scala with sbt", "sbt test", "build.sbt is sbt's")
