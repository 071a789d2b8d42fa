"""The readable side of an index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .conf import get_settings
from .database import DatabaseSource
from .exceptions import IndexUnavailable, IndexUnhealthy, NotRanked
from .recommendations import Recommendations, recommend
from .store import Store

if TYPE_CHECKING:
    from .index import Band, RankIndex
    from .recommendations import Source

__all__ = ["Ranking"]

Answer = TypeVar("Answer")

_TRUST: Final = 1.0
"""Seconds for which a server that was found healthy is believed."""


class Ranking:
    """What can be asked of an index: ``PlayerRank.ranking``.

    A member is given as an instance of the model or as its primary key. Every method raises
    :exc:`~django_zrank.IndexUnavailable` where the index is not built or Redis can't be reached, after the
    timeout of its alias.
    """

    def __init__(self, index: RankIndex) -> None:
        self.index = index
        self.store = Store(index.name, index.layout)
        self._healthy_until = 0.0

    def __repr__(self) -> str:
        return f"<Ranking of {self.index!r}>"

    def recommend(
        self,
        member: Any,
        n: int = 10,
        *,
        band: Band | None = None,
        exclude: Iterable[Any] = (),
        widen: Sequence[Band] = (),
        seed: int | str | bytes | None = None,
    ) -> Recommendations:
        """``n`` random distinct members whose score is near ``member``'s, half ranked before it, half after.

        On each side every set of candidates is equally likely; an odd one comes from before; what one side
        lacks the other gives. Fewer than ``n`` come back only where there are fewer.

        ``band``: how far a score may lie from mine, ends included: one distance, or (below, above). Default:
        the index's. ``widen``: further bands, tried in turn while there are fewer than ``n``. ``exclude``:
        members not to offer, beside those of ``get_excluded()``. ``seed``: the same draw every time, for
        tests. One round trip to Redis.

        Raises :exc:`~django_zrank.NotRanked`, and ``ValueError`` for nonsense (n < 1, a negative band).
        """
        if isinstance(exclude, Iterator):  # asked twice where the database answers in Redis's stead
            exclude = list(exclude)
        return self._ask(
            lambda source: recommend(
                self.index, source, member, n, band=band, exclude=exclude, widen=widen, seed=seed
            )
        )

    def rank(self, member: Any) -> int:
        """The rank of ``member``, 1 is best. Raises :exc:`~django_zrank.NotRanked`."""
        text, reverse = self.index.to_text(member), self.index.ordering.first.descending
        position = self._ask(lambda source: source.position(text, reverse=reverse))
        if position is None:
            raise NotRanked(f"{member!r} is not in the index {self.index.name!r}")
        return position + 1

    def score(self, member: Any) -> Any:
        """The score of ``member``, in the field's own type. Raises :exc:`~django_zrank.NotRanked`."""
        text = self.index.to_text(member)
        score = self._ask(lambda source: source.score(text))
        if score is None:
            raise NotRanked(f"{member!r} is not in the index {self.index.name!r}")
        return self.index.ordering.first.kind.decode(score)

    def count(self) -> int:
        """How many members are ranked."""
        return self._ask(lambda source: source.size())

    def _ask(self, question: Callable[[Source], Answer]) -> Answer:
        """Put a question to Redis, or to whom ``ZRANK["UNHEALTHY"]`` says where it can't be believed."""
        unhealthy = get_settings().unhealthy
        try:
            if unhealthy != "serve_stale":
                self._require_health()
            return question(self.store)
        except IndexUnavailable:
            if unhealthy != "database":
                raise
            return question(DatabaseSource(self.index))

    def _require_health(self) -> None:
        """Raise ``IndexUnhealthy`` where the server may have lost writes. Looked up once a second."""
        now = monotonic()
        if now < self._healthy_until:
            return
        health = self.store.check_health()
        if health.generation and (health.behind or not health.same_server):
            raise IndexUnhealthy(
                f"Index {self.index.name!r}: Redis may have lost writes; sync_zrank replays them"
            )
        self._healthy_until = now + _TRUST
