"""The service that is deployed: who may come in."""


def allowed(user: str, users: dict[str, bool]) -> bool:
    return users.get(user, False)
