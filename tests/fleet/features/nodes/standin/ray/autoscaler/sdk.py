from ray import note


def request_resources(num_cpus: int) -> None:
    note(f"slots {num_cpus}")
