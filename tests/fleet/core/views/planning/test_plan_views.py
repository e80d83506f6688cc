"""Plans and their parameters as scripts read them."""

from fleet.core.plans.parameters import Parameter
from fleet.core.views.plan_views import graph_view, parameter_view
from tests.fleet.core.story import plan_of


def test_a_graph_names_what_each_subtask_depends_on() -> None:
    graph = graph_view(plan_of("schema", "api needs schema"), "plan.dot")
    assert graph.file == "plan.dot"
    assert [(node.id, node.depends_on) for node in graph.subtasks] == [("schema", ()), ("api", ("schema",))]
    assert all(node.title for node in graph.subtasks)


def test_a_parameter_without_a_default_is_required() -> None:
    version = parameter_view("version", Parameter(help="what to deploy"))
    place = parameter_view("place", Parameter(type="choice", choices=("here", "there"), default="here"))
    assert (version.required, version.type, version.help) == (True, "string", "what to deploy")
    assert (place.required, place.default, place.choices) == (False, "here", ("here", "there"))
