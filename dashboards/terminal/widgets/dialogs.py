"""Dialogs: a text to read, a choice by key, a line of input. They show plain text, never markup."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Static

WIDEST = 110


def text_width(screen: int) -> int:
    """The width of a dialog's text: without its border, its padding and its scroll bar."""
    return min(WIDEST, screen * 9 // 10) - 6


class Dialog(ModalScreen[str | None]):
    """A title, a text, and a line of keys. Its result is None if it was closed."""

    DEFAULT_CSS = f"""
    Dialog {{
        align: center middle;
        & > #box {{
            width: 90%; max-width: {WIDEST}; height: auto; max-height: 90%;
            border: round $accent; padding: 0 1; background: $surface;
        }}
        & #title {{ text-style: bold; color: $accent; }}
        & #text {{ height: auto; max-height: 20; }}
        & Input {{ margin-top: 1; border: round $accent; background: $surface; }}
        & #keys {{ text-style: bold; margin-top: 1; }}
    }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close")]

    def __init__(self, title: str, text: str, keys: str = "Esc close") -> None:
        super().__init__()
        self._title, self._text, self._keys = title, text, keys

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Static(Text(self._title), id="title")
            if self._text:
                with VerticalScroll(id="text", can_focus=self.text_has_focus):
                    yield Static(Text(self._text))
            yield from self.fields()
            yield Static(Text(self._keys), id="keys")

    text_has_focus: ClassVar[bool] = True

    def fields(self) -> Iterable[Widget]:
        """The widgets between the text and the keys."""
        return ()

    def action_close(self) -> None:
        self.dismiss(None)


class TextDialog(Dialog):
    """A text to read."""

    DEFAULT_CSS = "TextDialog #text { max-height: 100%; }"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,enter,question_mark", "close", "Close")]


class ChoiceDialog(Dialog):
    """A choice between a few keys. Its result is the key."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("n,q", "close", "No")]

    def __init__(self, title: str, text: str, choices: Mapping[str, str], *, no: str = "no") -> None:
        keys = [*(f"{key} {word}" for key, word in choices.items()), f"n {no}"]
        super().__init__(title, text, "    ".join(keys))
        self._choices = choices

    def on_key(self, event: events.Key) -> None:
        if event.character in self._choices:
            event.stop()
            self.dismiss(event.character)


class Answer(Input):
    """A line of input; a digit chooses an option while nothing has been typed."""

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


class InputDialog(Dialog):
    """A line of input, with options to choose by number. Its result is the text."""

    text_has_focus = False

    def __init__(
        self, title: str, text: str, *, options: Sequence[str] = (), value: str = "", may_be_empty: bool = False
    ) -> None:
        numbers = f"1-{len(options)}" if len(options) > 1 else "1"
        super().__init__(title, text, "Enter send    Esc close" + f"    {numbers} choose an option" * bool(options))
        self._options, self._value, self._may_be_empty = options, value, may_be_empty

    def fields(self) -> Iterable[Widget]:
        if self._options:
            yield Static(Text("\n".join(f"{n}  {text}" for n, text in enumerate(self._options, 1))), id="options")
        yield Answer(self._options, self._value)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip() or self._may_be_empty:
            self.dismiss(event.value.strip())
