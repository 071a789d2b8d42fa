"""What commands and the admin say of numbers of things: one thing is not called several."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

import django_zrank

ROOT = Path(django_zrank.__file__).parent
EDGES = [path for room in ("management", "admin", "sync") for path in sorted((ROOT / room).rglob("*.py"))]
NOUNS = "batch|candidate|build|group|index|job|key|mark|member|ranking|row|score|shard|table|trigger"
NEVER_ONE = {"len(_indexes_of(self.model))": "one index would be no error"}

SEVERAL = re.compile(rf" ({NOUNS})e?s\b")


@pytest.mark.parametrize("path", EDGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_number_in_a_message_chooses_the_word_after_it(path: Path) -> None:
    """Constants are no numbers of things."""
    wrong = [
        f"{ast.unparse(number)}{text.value}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr)
        for number, text in pairwise(node.values)
        if isinstance(number, ast.FormattedValue) and isinstance(text, ast.Constant)
        if SEVERAL.match(str(text.value)) and not ast.unparse(number.value).strip("_").isupper()
        if ast.unparse(number.value) not in NEVER_ONE
    ]
    assert wrong == []


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.html")), ids=lambda path: path.name)
def test_a_number_on_a_page_chooses_the_word_after_it(path: Path) -> None:
    assert not re.search(rf"}}}}{SEVERAL.pattern}", path.read_text())
