"""Facts: what happened in a run, past tense, in the order it is true. The journal holds nothing else.

A fact that was ever written must load for ever: fields are added with defaults, never renamed or removed. Others import
the facts and their parts from here.
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
