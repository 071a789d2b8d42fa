"""Changes that are made in Redis first: ``PlayerRank.scores``."""

from __future__ import annotations

from .declaration import Index
from .idle.touching import Touching
from .write_behind.changing import Changing

__all__ = ["Scores"]


class Scores(
    Changing,
    Touching,
):
    """Changes that are made in Redis first, of an index that declares what may change there.

    A change is ranked when the call returns, and written to the column within seconds. It is not part of a
    transaction: a rollback doesn't undo it. Every method raises :exc:`~django_zrank.IndexUnavailable` if Redis can't be
    reached: if the connection breaks before the reply arrives, the change may have been made. The same error is raised
    if a row that has to be changed first is locked; then nothing was changed.
    """

    def __init__(self, index: Index) -> None:
        self.index = index

    def __repr__(self) -> str:
        return f"<Scores of {self.index!r}>"
