"""Random people near my level, ranks and leaderboards: a ranked mirror of a Django model in Redis.

Declare an index in ``<app>/zrank.py``::

    from django_zrank import RankIndex, register

    @register
    class PlayerRank(RankIndex):
        model = Player
        order = ("-level",)
        band = 10

run ``manage.py rebuild_zrank``, and ask::

    PlayerRank.ranking.recommend(player, n=10).objects()
    PlayerRank.ranking.rank(player)
"""

from .entries import Entries, Entry, EntryPage, Recommendations
from .exceptions import IndexUnavailable, NotRanked
from .index import RankIndex
from .ranking import Ranking
from .registry import register

__all__ = [
    "Entries",
    "Entry",
    "EntryPage",
    "IndexUnavailable",
    "NotRanked",
    "RankIndex",
    "Ranking",
    "Recommendations",
    "register",
]
