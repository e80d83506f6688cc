"""Greets people in the languages that `greetings/` has."""

from pathlib import Path

GREETINGS = Path(__file__).parent / "greetings"


def greet(name: str, language: str = "en") -> str:
    text = (GREETINGS / f"{language}.txt").read_text(encoding="utf-8").strip()
    return text.replace("NAME", name)
