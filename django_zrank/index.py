"""The index that a project declares, with the rankings, groups and scores that its code calls."""

from __future__ import annotations

from typing import ClassVar

from .codec.units import Band
from .declaration import Index, Member
from .erase import Erasing
from .extension import (
    Fallback,
    Source,
    avoided,
    companions,
    extensions,
    fallbacks,
    narrowing,
    own_keys,
    settings,
    sources,
    tables,
)
from .groups import Grouping
from .idle.declaration import IdleIndex
from .methods import methods
from .ranking import Ranking
from .scores import Scores
from .shards.declaration import ShardedIndex
from .shown.declaration import ShowingIndex
from .windows import lookup  # noqa: F401 - it is registered
from .write_behind.declaration import WriteBehindIndex

__all__ = ["Band", "RankIndex"]

# The parts, with the base classes of RankIndex and of Ranking. Whoever deletes the files of a part deletes its lines
# here, and nothing else of the kernel: docs/design.md says more.
fallbacks["database"] = Fallback("django_zrank.sql.answer_by_sql", label="by SQL")
sources["replica"] = Source("django_zrank.replicas.asking", check="django_zrank.replicas.check_replicas")
narrowing.append("django_zrank.combined.combine")
methods["dense"] = "django_zrank.dense.method.Dense"
companions["django.contrib.admin"] = "django_zrank.jobs.running.running_jobs"
tables["jobs"] = "django_zrank.jobs.models"
settings["sql"] = "django_zrank.sql.conf.SQLSettings"
settings["replicas"] = "django_zrank.replicas.conf.ReplicaSettings"
settings["combined"] = "django_zrank.combined.conf.FilterSettings"
settings["write_behind"] = "django_zrank.write_behind.conf.ScoreSettings"
extensions["shards"] = "django_zrank.shards.extension.Divided"
extensions["windows"] = "django_zrank.windows.extension.Windows"
extensions["write_behind"] = "django_zrank.write_behind.extension.WriteBehind"
extensions["idle"] = "django_zrank.idle.extension.Idle"
extensions["shown"] = "django_zrank.shown.extension.Shown"
extensions["combined"] = "django_zrank.combined.extension.Combined"
avoided["remember"] = "django_zrank.remember.memory.remembering"
own_keys.append("remembered")
extensions["remember"] = "django_zrank.remember.extension.Remembered"
extensions["group_counts"] = "django_zrank.groups.extension.Groups"


class _RankingAccessor:
    """Return the ranking of an index: ``PlayerRank.ranking``, as ``Player.objects`` returns a manager."""

    def __get__(self, instance: RankIndex[Member] | None, owner: type[RankIndex[Member]]) -> Ranking[Member]:
        kept: dict[str, Ranking[Member]] = vars(owner.instance())  # Python looks there first
        ranking = kept.get("ranking")
        return kept.setdefault("ranking", Ranking(owner.instance())) if ranking is None else ranking


class _ScoresAccessor:
    """Return the scores of an index: ``PlayerRank.scores``. Django's ``classproperty`` has no types of its own."""

    def __get__(self, instance: RankIndex | None, owner: type[RankIndex]) -> Scores:
        return Scores(owner.instance())


class RankIndex(
    Erasing,
    Grouping[Member],
    WriteBehindIndex[Member],
    IdleIndex[Member],
    ShowingIndex[Member],
    ShardedIndex[Member],
    Index[Member],
):
    """One ranking of one model. Subclass it in ``<app>/zrank.py`` and decorate it with ``@register``.

    Every attribute has a ``get_…`` method to override where a constant is not enough. One instance serves the process.
    ``RankIndex[Player]`` tells type checkers what ``objects()`` returns.
    """

    ranking: ClassVar[_RankingAccessor] = _RankingAccessor()
    """The ranking of all members: ``PlayerRank.ranking.recommend(player)``."""

    scores: ClassVar[_ScoresAccessor] = _ScoresAccessor()
    """Changes made in Redis first: ``increment(player)`` with ``write_behind``, ``touch(player)`` with ``idle``."""
