"""The machines of a configuration: what each may do for a run, and what worker kinds ask of them."""

from collections.abc import Mapping

from fleet.config.schema import Config
from fleet.core.plans.limits import HERE, MachineOffer, Machines


def machines_of(config: Config) -> Machines:
    """The machines that may ever work for a run with this configuration."""
    nodes = {
        name: MachineOffer(labels=node.labels or (), lands=bool(node.lands), works=node.workers != 0)
        for name, node in config.nodes.items()
    }
    return Machines(
        offers={HERE: MachineOffer(labels=config.box.labels, lands=True), **nodes},
        workers={name: worker.labels for name, worker in config.workers.items() if worker.labels},
        stays=tuple(stays_here(config)),
    )


def stays_here(config: Config) -> Mapping[str, str]:
    """Why attempts of a worker can't be made on nodes, by worker."""
    reasons = {}
    for name, worker in config.workers.items():
        if worker.hosts:
            reasons[name] = "it fetches from hosts as this machine reaches them"
        elif worker.mcp:
            reasons[name] = f"the tools of {', '.join(worker.mcp)} are called by this machine"
        elif worker.pass_environment:
            reasons[name] = f"it gets {', '.join(worker.pass_environment)} from this machine's environment"
    return reasons
