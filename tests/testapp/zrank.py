from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.db.models import QuerySet

from django_zrank import RankIndex, register
from tests.testapp.methods import KEEPING

from . import models


@register
class PlayerRank(RankIndex):
    model = models.Player
    order = ("-level",)
    band = 10
    owner = "user"

    def get_queryset(self) -> QuerySet[models.Player]:
        return models.Player.objects.filter(is_active=True)

    def get_excluded(self, member: models.Player) -> Iterable[Any]:
        return member.friends.values_list("pk", flat=True)


@register
class PlayerAscending(RankIndex):
    """The same rows, lowest first, without exclusions."""

    name = "ascending"
    model = models.Player
    order = ("level",)


@register
class EmployeeRank(RankIndex):
    model = models.Employee
    order = ("-points",)


@register
class AccountRank(RankIndex):
    model = models.Account
    order = ("-profile__points",)

    def get_queryset(self) -> QuerySet[models.Account]:
        return models.Account.objects.exclude(club__is_open=False)


@register
class NicknameRank(RankIndex):
    model = models.Nickname
    order = ("-score",)
    band = 1.5


@register
class CompetitorRank(RankIndex):
    """All that an index may have: several criteria, facets of every sort, counts of values."""

    name = "competitors"
    model = models.Competitor
    order = ("-points", "joined")
    ranking_method = KEEPING
    facets = ("region", "guild__slug", "tags", "tags__word", ("region", "platform"), ("platform", "tags"))


@register
class RemoteRank(RankIndex):
    model = models.Remote
    order = ("-score",)


class TicketRank(RankIndex):
    """One index for each type of column."""

    model = models.Ticket

    def get_name(self) -> str:
        return f"ticket-{self.order[0].removeprefix('-')}"


@register
class ByInteger(TicketRank):
    order = ("-integer",)
    band = 10


@register
class ByLoose(TicketRank):
    """Ranks what a score holds exactly, and leaves out what its column should not hold."""

    order = ("-loose",)


@register
class ByReal(TicketRank):
    order = ("real",)
    band = 0.5


@register
class ByPrice(TicketRank):
    order = ("-price",)
    band = (1, 2)


@register
class ByFlag(TicketRank):
    order = ("-flag",)
    band = 0


@register
class ByDay(TicketRank):
    order = ("day",)
    band = timedelta(days=7)


@register
class ByMoment(TicketRank):
    order = ("-moment",)
    band = timedelta(hours=1)


@register
class BySpan(TicketRank):
    order = ("span",)
    band = timedelta(seconds=90)


@register
class VideoRank(RankIndex):
    """Views are counted in Redis."""

    model = models.Video
    order = ("-views",)
    write_behind = "increment"

    def get_queryset(self) -> QuerySet[models.Video]:
        return models.Video.objects.filter(is_public=True)


@register
class VideoPrice(RankIndex):
    """The best price is kept in Redis."""

    name = "prices"
    model = models.Video
    order = ("-price",)
    write_behind = "best"
