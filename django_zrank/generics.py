"""Type variables of the public API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import TypeVar

    Member = TypeVar("Member", bound=models.Model, default=Any)
else:
    from typing import TypeVar

    Member = TypeVar("Member", bound=models.Model)
    """The model of an index: ``RankIndex[Player]``. Python 3.13 has a default, for declarations that leave it out."""

__all__ = ["Member"]
