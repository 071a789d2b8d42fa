"""Members that were shown to one, and aren't drawn for it again: ``recommend(player, remember=timedelta(days=1))``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Generic

from ..declaration import Index, Member
from ..queries.steps import Steps
from ..redis import reader_of
from ..redis.verbs import async_version, verb
from .memory import forget_remembered

__all__ = ["Remembering"]


class Remembering(Generic[Member]):
    """The method of a ranking that forgets."""

    if TYPE_CHECKING:
        index: Index[Member]

    @verb
    def forget(self, member: Any) -> Steps[None]:
        """Forget the members shown to ``member`` (see ``remember``), so that they can be drawn again."""
        text = self.index.to_text(member)
        yield from reader_of(self.index.holder_of(text)).running(partial(forget_remembered, member=text))

    aforget = async_version(forget)
