"""Docstrings and signatures as the reference shows them: names in place of Sphinx roles, answers in place of steps."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`(?:~[\w.]*\.(?=\w+`)|~|\.)?([\w.]+)`")
"""A role, ``:exc:`~django_zrank.NotRanked```; its group is the name to show."""


STANDS_FOR = {"_RankingAccessor": "Ranking[Member]", "_ScoresAccessor": "Scores"}
"""Types of attributes of a class, and what they return."""

UNWRAPPED = {"Steps", "classproperty"}


class Readable(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        func.returns = unwrapped(func.returns)

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        attr.annotation = STANDS_FOR.get(str(attr.annotation), unwrapped(attr.annotation))


def unwrapped(type_: Any) -> Any:
    """Return what a verb returns in place of its steps."""
    if isinstance(type_, griffe.ExprSubscript) and str(type_.left) in UNWRAPPED:
        return type_.slice
    if isinstance(type_, griffe.ExprSubscript) and str(type_.left) == "Batches":
        type_.left = "Iterator"
    return type_
