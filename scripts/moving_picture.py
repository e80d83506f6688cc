"""A moving picture from screenshots of a terminal: one SVG with an animation in CSS, which GitHub and browsers play.

Each element that screenshots share is drawn once, and hidden while the screenshots without it are shown. Readers who
prefer reduced motion see the last screenshot.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from html import escape, unescape
from itertools import groupby

CELL = 12.2
"""The width of a character in screenshots of Textual."""
_RULE = re.compile(r"\.[\w-]+-(r\d+) \{ ([^}]*?);? \}")
_TEXT = re.compile(r'<text class="[\w-]+-(r\d+)" x="([\d.]+)" y="([\d.]+)"[^>]*>([^<]*)</text>')
_RECT = re.compile(r'<rect fill="(#\w+)" x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"[^>]*/>')
_STYLE = re.compile(r'style="([^"]*)"')
_FRAME = re.compile(r'<svg[^>]*viewBox="0 0 ([\d.]+) ([\d.]+)"')
_WINDOW = re.compile(r'</defs>(.*?)<g transform="translate\(([\d., ]+)\)" clip-path', re.DOTALL)


def animate(shots: Sequence[str], *, seconds: float, last: float) -> str:
    """Return the screenshots as one SVG that shows each for `seconds`, the last one for `last`, and starts again."""
    shown: dict[str, set[int]] = defaultdict(set)
    for number, shot in enumerate(shots):
        for element in _elements(shot):
            shown[element].add(number)
    ends = [seconds * (number + 1) for number in range(len(shots) - 1)]
    total = seconds * (len(shots) - 1) + last
    starts = [100 * end / total for end in (0.0, *ends)]
    layers: dict[frozenset[int], list[str]] = defaultdict(list)
    for element in shown:
        layers[frozenset(shown[element])].append(element)
    rules, drawn = list[str](), list[str]()
    styles: dict[str, str] = {}
    for number, (numbers, elements) in enumerate(sorted(layers.items(), key=lambda layer: -len(layer[0]))):
        if len(numbers) < len(shots):
            rules.append(_rule(f"m{number}", numbers, starts, total))
        body = "".join(sorted(elements, key=_backgrounds_first))
        body = _STYLE.sub(lambda style: f'class="{styles.setdefault(style[1], f"s{len(styles)}")}"', body)
        drawn.append(f'<g class="m{number}">{body}</g>')
    rules += [f".{name}{{{style}}}" for style, name in styles.items()]
    width, height = _found(_FRAME, shots[-1])
    window, moved = _found(_WINDOW, shots[-1])
    style = (
        "text{font:20px Fira Code,Menlo,Consolas,monospace;white-space:pre}"
        "@media(prefers-reduced-motion:reduce){g{animation:none!important}}"
    )
    title = re.sub(r'class="[\w-]+"', 'style="font:bold 18px arial"', window.strip())
    return (
        f'<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">\n<style>{style}\n'
        + "\n".join(rules)
        + f'</style>\n{title}\n<g transform="translate({moved})">\n'
        + "\n".join(drawn)
        + "\n</g>\n</svg>\n"
    )


def _rule(name: str, numbers: frozenset[int], starts: Sequence[float], total: float) -> str:
    """Return the style of a layer: visible during these screenshots."""
    steps = [(starts[number], number in numbers) for number in range(len(starts))]
    changes = [next(group) for _, group in groupby(steps, key=lambda step: step[1])]
    frames = "".join(f"{at:.4g}%{{visibility:{'visible' if on else 'hidden'}}}" for at, on in changes)
    still = "visible" if steps[-1][1] else "hidden"
    return f".{name}{{visibility:{still};animation:{name} {total:g}s step-end infinite}}@keyframes {name}{{{frames}}}"


def _elements(shot: str) -> Iterator[str]:
    """Yield backgrounds and pieces of text, each with its own style and without blanks at its ends."""
    rules = dict(_RULE.findall(shot))
    *_, body = _WINDOW.split(shot, maxsplit=1)
    for color, x, y, width, height in _RECT.findall(body):
        yield f'<rect fill="{color}" x="{x}" y="{y}" width="{width}" height="{height}"/>'
    for rule, x, y, text in _TEXT.findall(body):
        plain = unescape(text).replace("\N{NO-BREAK SPACE}", " ")
        if piece := plain.strip():
            at = float(x) + CELL * (len(plain) - len(plain.lstrip()))
            style = rules[rule].replace(": ", ":").replace("fill:#c5c8c6;", "")
            yield (
                f'<text style="{style}" x="{at:g}" y="{y}" textLength="{CELL * len(piece):g}">'
                f"{escape(piece, quote=False)}</text>"
            )


def _backgrounds_first(element: str) -> bool:
    return not element.startswith("<rect")


def _found(pattern: re.Pattern[str], shot: str) -> tuple[str, str]:
    match = pattern.search(shot)
    if match is None:
        raise ValueError("this is not a screenshot of Textual")
    return match[1], match[2]
