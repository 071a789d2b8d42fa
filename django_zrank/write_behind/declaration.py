"""The attribute ``write_behind`` of an index, and what follows from it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from ..declaration import Index, Member
from .column import Column

__all__ = ["WriteBehindIndex"]


class WriteBehindIndex(Index[Member]):
    """The declaration of an index that may have write-behind scores."""

    write_behind: str = ""
    """The rule by which write-behind scores (``PlayerRank.scores``) are written to the column: ``"increment"``
    adds the change, ``"best"`` keeps the better value, ``"latest"`` replaces it. Default: scores begin in the
    database."""

    def get_write_behind(self) -> str:
        return self.write_behind

    @cached_property
    def column(self) -> Column | None:
        """The column that scores are written to; None if they begin in the database. Raises ``FieldError``."""
        return Column.parse(self.model, self.ordering, self.get_write_behind())

    @cached_property
    def rule(self) -> str:
        """The rule of ``write_behind``, as scripts name it; '' if scores begin in the database."""
        return self.column.rule if self.column else ""

    @cached_property
    def noted_rule(self) -> str:
        """The rule with its column and unit, as :attr:`Column.noted`; '' if scores begin in the database."""
        return self.column.noted if self.column else ""

    @property
    def is_ahead(self) -> bool:
        return super().is_ahead or bool(self.rule)

    def further_terms(self) -> list[Any]:
        return [*super().further_terms(), *([self.noted_rule] if self.noted_rule else [])]
