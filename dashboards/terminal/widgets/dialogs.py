"""What is asked before something happens: a yes or no, or a line of text; and words to read. All of it as text."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

WIDEST = 110
BOX = f"""
    align: center middle;
    & > #box {{
        width: 90%; max-width: {WIDEST}; height: auto; max-height: 90%;
        border: round $accent; padding: 0 1; background: $surface;
    }}
    & #title {{ text-style: bold; color: $accent; }}
    & #text {{ height: auto; max-height: 20; }}
    & Input {{ margin-top: 1; border: round $accent; background: $surface; }}
    & #keys {{ text-style: bold; margin-top: 1; }}
"""


def text_width(screen: int) -> int:
    """How many characters stand side by side in a box: without its border, its edges and its scroll bar."""
    return min(WIDEST, screen * 9 // 10) - 6


class Confirm(ModalScreen[bool]):
    """Whether something that can't be undone shall happen. Only a clear yes is one."""

    DEFAULT_CSS = f"Confirm {{ {BOX} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "say(True)", "Yes"),
        Binding("n,escape,q", "say(False)", "No"),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(Text(self._title), id="title")
            with VerticalScroll(id="text"):
                yield Static(Text(self._text))
            yield Static(Text("y yes    n no"), id="keys")

    def action_say(self, yes: bool) -> None:
        self.dismiss(yes)


class Choose(ModalScreen[str | None]):
    """One of a few keys, each with what it means; None where somebody leaves."""

    DEFAULT_CSS = f"Choose {{ {BOX} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("n,escape,q", "leave", "No")]

    def __init__(self, title: str, text: str, choices: Mapping[str, str], *, no: str = "no") -> None:
        super().__init__()
        self._title, self._text, self._choices, self._no = title, text, choices, no

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(Text(self._title), id="title")
            with VerticalScroll(id="text"):
                yield Static(Text(self._text))
            words = [*(f"{key} {word}" for key, word in self._choices.items()), f"n {self._no}"]
            yield Static(Text("    ".join(words)), id="keys")

    def on_key(self, event: events.Key) -> None:
        if event.character in self._choices:
            event.stop()
            self.dismiss(event.character)

    def action_leave(self) -> None:
        self.dismiss(None)


class Answer(Input):
    """A line of text; a digit takes an option while nothing has been typed."""

    def __init__(self, options: Sequence[str], value: str) -> None:
        super().__init__(value)
        self._options = options

    def on_key(self, event: events.Key) -> None:
        number = int(event.character) if event.character and event.character.isdecimal() else 0
        if not self.value and 1 <= number <= len(self._options):
            event.stop()
            event.prevent_default()
            self.value = self._options[number - 1]
            self.cursor_position = len(self.value)


class Ask(ModalScreen[str | None]):
    """A line of text; the options are offered by number."""

    DEFAULT_CSS = f"Ask {{ {BOX} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave")]

    def __init__(
        self, title: str, text: str, *, options: Sequence[str] = (), value: str = "", may_be_empty: bool = False
    ) -> None:
        super().__init__()
        self._title, self._text, self._options, self._value = title, text, options, value
        self._may_be_empty = may_be_empty

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(Text(self._title), id="title")
            if self._text:
                with VerticalScroll(id="text", can_focus=False):
                    yield Static(Text(self._text))
            if self._options:
                yield Static(Text("\n".join(f"{n}  {text}" for n, text in enumerate(self._options, 1))), id="options")
            yield Answer(self._options, self._value)
            numbers = f"    1-{len(self._options)} take an option" if self._options else ""
            yield Static(Text(f"Enter send    Esc leave{numbers}"), id="keys")

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() or self._may_be_empty:
            self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        self.dismiss(None)


class Words(ModalScreen[None]):
    """Something to read."""

    DEFAULT_CSS = f"Words {{ {BOX} & #text {{ max-height: 100%; }} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,enter,question_mark", "leave", "Leave")]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title, self._text = title, text

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(Text(self._title), id="title")
            with VerticalScroll(id="text"):
                yield Static(Text(self._text))
            yield Static(Text("Esc leave"), id="keys")

    def action_leave(self) -> None:
        self.dismiss(None)
