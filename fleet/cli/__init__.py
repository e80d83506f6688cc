"""The command line: the program, its verbs, the screens of a run. May import everything; nothing else imports it."""

from fleet.own_packages import put_first

put_first()


def main() -> None:
    """Run the program."""
    from fleet.cli.entry import run_program  # noqa: PLC0415 - who imports a verb alone needs no program

    run_program()
