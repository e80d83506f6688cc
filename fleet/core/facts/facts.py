"""Facts: the events of a run, in the past tense and in the order in which they became true.

The journal contains only facts. Every fact that was ever written must still load: fields are added with defaults, and a
renamed field or value also loads under its old name. Import facts and their parts from this module.
"""

from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter

from fleet.core.facts.attempt_facts import *  # noqa: F403 - all facts and their parts
from fleet.core.facts.attempt_facts import AttemptFact, LandingFact, ReviewFact
from fleet.core.facts.fact_parts import *  # noqa: F403
from fleet.core.facts.plan_facts import *  # noqa: F403
from fleet.core.facts.plan_facts import PeopleFact, PlanFact
from fleet.core.facts.run_facts import *  # noqa: F403
from fleet.core.facts.run_facts import NodeFact, RunFact

Fact = RunFact | PlanFact | AttemptFact | LandingFact | PeopleFact | NodeFact | ReviewFact

FACT: TypeAdapter[Fact] = TypeAdapter(Annotated[Fact, Field(discriminator="kind")], config=ConfigDict(defer_build=True))
