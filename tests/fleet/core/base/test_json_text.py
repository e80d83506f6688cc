"""JSON is parsed to the same depth by every version of Python."""

import json

import pytest

from fleet.core.base.output import DEEPEST, is_deep, parse_json


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_json_is_parsed_to_a_limit_and_no_deeper(opening: str) -> None:
    closing = "]" if opening == "[" else "}"

    def nested(levels: int) -> str:
        return opening * (levels - 1) + "[]" + closing * (levels - 1)

    assert not is_deep(parse_json(nested(DEEPEST)), DEEPEST)
    for levels in (DEEPEST + 1, 900, 5_000, 100_000):
        with pytest.raises(ValueError, match="nested"):
            parse_json(nested(levels).encode())


def test_a_broad_document_is_not_a_deep_one() -> None:
    rows = [{"a": [1, 2]} for _ in range(1_000)]
    assert parse_json(json.dumps(rows)) == rows


@pytest.mark.parametrize("text", ["", "[", "{]", "\ud800"])
def test_what_is_not_json_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever its words
        parse_json(text)
