"""A project's own views beside those of the app."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import django_filters
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import include, path
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import serializers
from rest_framework.authentication import BasicAuthentication
from rest_framework.filters import SearchFilter
from rest_framework.pagination import LimitOffsetPagination, PageNumberPagination
from rest_framework.permissions import AllowAny, IsAdminUser, IsAuthenticated
from rest_framework.routers import DefaultRouter, SimpleRouter
from rest_framework.throttling import UserRateThrottle
from rest_framework.versioning import QueryParameterVersioning

from django_zrank import RankIndex
from django_zrank.rest_framework.permissions import IsOwner
from django_zrank.rest_framework.serializers import EntrySerializer, UnrankedSerializer
from django_zrank.rest_framework.viewsets import LeaderboardViewSet, RecommendationViewSet
from tests.testapp.methods import KEEPING
from tests.testapp.models import Musician, Player, WeekResult
from tests.testapp.zrank import (
    ByDay,
    ByFlag,
    ByInteger,
    ByMoment,
    ByPrice,
    ByReal,
    BySpan,
    NicknameRank,
    PlayerRank,
)


class Trained(RankIndex):
    """Everybody owns the friends of the own player: a path to several owners of several rows."""

    name = "trained"
    model = Player
    order = ("-level",)
    band = 10
    owner = "friends__user"


class Users(RankIndex):
    """Users who are ranked themselves."""

    name = "users"
    model = User
    order = ("-date_joined",)
    band = timedelta(days=1)

    def get_queryset(self) -> Any:
        return User.objects.filter(is_staff=False)

    def get_excluded(self, member: User) -> Any:
        return User.objects.filter(groups__user=member)


class Bandless(RankIndex):
    name = "bandless"
    model = Player
    order = ("-level",)
    owner = "user"


class Regional(RankIndex):
    """By region and by whether somebody has a user: facets of each kind of value, null among them."""

    name = "regional"
    model = Player
    order = ("-level",)
    band = 10
    owner = "user"
    facets = ("bio", "is_active", "user", ("bio", "is_active"))


class Active(Regional):
    """Rows that aren't active are hidden."""

    name = "active"

    def get_queryset(self) -> Any:
        return Player.objects.filter(is_active=True)


class Tied(Regional):
    """Two criteria."""

    name = "tied"
    order = ("-is_active", "level")
    facets = ("bio",)


class TiedRanks(Regional):
    """Members of a score share a rank."""

    name = "tied-ranks"
    order = ("-is_active",)
    ranking_method = KEEPING
    facets = ()


class Pairs(Regional):
    """Only a facet of two columns together."""

    name = "pairs"
    facets = (("bio", "is_active"),)


class WeekRank(RankIndex):
    """Each user has a row for each week."""

    name = "week"
    model = WeekResult
    order = ("-points",)
    band = 100
    owner = "user"
    facets = ("week",)


class Alike(WeekRank):
    """The same, without a facet that tells the rows of a user apart."""

    name = "alike"
    facets = ("user",)


def newest(view: Any) -> Any:
    """The row of the newest week of a user."""
    return WeekResult.objects.filter(user=view.request.user).latest("week")


class MusicianRank(RankIndex):
    """Facets that are called like parameters."""

    name = "musician"
    model = Musician
    order = ("-level",)
    band = 10
    owner = "user"
    facets = ("band", "page", "facet_page", "genre")


def own_region(view: Any) -> Any:
    """The ranking that a view shows to its user, of whom there must be one."""
    return Regional.ranking.filter(bio=view.request.user.player.bio)


class PlayerSerializer(serializers.ModelSerializer[Player]):
    asked_at = serializers.SerializerMethodField()

    class Meta:
        model = Player
        fields = ["name", "asked_at"]

    def get_asked_at(self, player: Player) -> str:
        return str(self.context["request"].path)


class SameNames(serializers.ModelSerializer[Player]):
    """Fields with the names of the ranking's, which show the same things in another form."""

    score = serializers.CharField(source="level")

    class Meta:
        model = Player
        fields = ["name", "pk", "score"]


class Counted(serializers.ModelSerializer[Player]):
    """A field with the name of one that a member alone has."""

    count = serializers.CharField(source="name")

    class Meta:
        model = Player
        fields = ["count"]


class Unranked(PlayerSerializer):
    """Rows without a rank."""

    rank = None


class OtherNames(serializers.ModelSerializer[Player]):
    """A field with a name of the ranking's, which shows something else."""

    rank = serializers.CharField(source="name")

    class Meta:
        model = Player
        fields = ["rank"]


class Bare(serializers.BaseSerializer[Player]):
    """No fields to look at, only what comes out."""

    def to_representation(self, instance: Player) -> dict[str, Any]:
        return {"score": instance.name}


class LinkedEntry(EntrySerializer):
    link = serializers.SerializerMethodField()

    def get_link(self, entry: Any) -> str:
        return f"/players/{entry.pk}/"


class AllValues(EntrySerializer):
    """All criteria of an entry, as docs/rest.md shows it."""

    values = serializers.ListField(read_only=True)


class Opponents(RecommendationViewSet):
    """My *opponents*."""

    serializer_class = PlayerSerializer
    filter_backends = [SearchFilter]
    search_fields = ["name"]
    pagination_class = PageNumberPagination


class EvenOpponents(RecommendationViewSet):
    queryset = Player.objects.exclude(name__endswith="1")

    def get_serializer_class(self) -> Any:
        return PlayerSerializer


class NamedOpponents(Opponents):
    def get_queryset(self) -> QuerySet[Player]:
        return Player.objects.filter(name__in=[f"level {level}" for level in range(101, 104)])


class Staff(RecommendationViewSet):
    permission_classes = [IsAdminUser]
    member_permission_classes = [IsAdminUser]


class Board(LeaderboardViewSet):
    """A project's own leaderboard."""

    index = Regional
    serializer_class = PlayerSerializer
    allow_groups = True

    def get_queryset(self) -> QuerySet[Player]:
        return Player.objects.exclude(name="hidden")

    def get_filters(self) -> dict[str, str]:
        return {"region": "bio", "active": "is_active", "user": "user"}


class TwicePerDay(UserRateThrottle):
    rate = "2/day"


def view(base: type[RecommendationViewSet] = RecommendationViewSet, **attributes: Any) -> Any:
    return type(base.__name__, (base,), attributes).as_view({"get": "list"})


class Offsets(LimitOffsetPagination):
    default_limit = 5


def board(**attributes: Any) -> Any:
    """The paths of a leaderboard with these attributes."""
    router = SimpleRouter()
    router.register(
        "", type("Board", (LeaderboardViewSet,), {"index": Regional, **attributes}), basename="board"
    )
    return include(router.urls)


SEARCHED = {"filter_backends": [SearchFilter], "search_fields": ["name"]}


class Levels(django_filters.FilterSet):
    level = django_filters.RangeFilter()

    class Meta:
        model = Player
        fields = {"name": ["exact", "startswith"]}


FILTERED = {"filter_backends": [DjangoFilterBackend], "serializer_class": PlayerSerializer}


class Undescribed:
    """A filter backend that names no parameters: REST framework asks for nothing but this method."""

    def filter_queryset(self, request: Any, queryset: QuerySet[Any], view: Any) -> QuerySet[Any]:
        return queryset.exclude(name=request.query_params.get("without", ""))


class Versions(QueryParameterVersioning):
    version_param = "v"


router = DefaultRouter()
router.register("opponents", Opponents, basename="opponent")
router.register("board", Board, basename="own-board")

urlpatterns = [
    path("api/", include("django_zrank.rest_framework.urls")),
    path("api/", include(router.urls)),
    path("even/", view(EvenOpponents)),
    path("named/", view(NamedOpponents)),
    path("same-names/", view(serializer_class=SameNames)),
    path("other-names/", view(serializer_class=OtherNames)),
    path("bare/", view(serializer_class=Bare)),
    path("linked/", view(serializer_class=LinkedEntry)),
    path("staff/", view(Staff)),
    path("staff/<index>/", view(Staff)),
    path("either/", view(member_permission_classes=[IsOwner | IsAdminUser])),
    path("open/", view(permission_classes=[AllowAny])),
    path("open/own-region/", view(permission_classes=[AllowAny], get_ranking=own_region)),
    path("open-to-all/", view(permission_classes=[AllowAny], member_permission_classes=[AllowAny])),
    path("authenticated/", view(permission_classes=[IsAuthenticated])),
    path("staff-may/", view(permission_classes=[IsAuthenticated, IsOwner | IsAdminUser])),
    path("admins-as-others/", view(member_permission_classes=[IsAdminUser])),
    path("lenient/", view(allow_unknown=True)),
    path("basic/", view(authentication_classes=[BasicAuthentication])),
    path("seeded/", view(allow_seed=True, allow_near=True)),
    path("ceilings/", view(max_band=[2, 4], max_ranks=[3, 5])),
    path("unbounded/", view(get_max_band=lambda view: None, max_ranks=None)),
    path("wrong-ceiling/", view(max_band="far")),
    path("no-band/", view(allow_band=False)),
    path("many/", view(default_n=18, max_excluded=3)),
    path("throttled/", view(throttle_classes=[TwicePerDay])),
    path("trained/", view(index=Trained)),
    path("trained-instance/", view(index=Trained.instance())),
    path("users/", view(index=Users)),
    path("users/board/", board(index=Users)),
    path("bandless/", view(index=Bandless)),
    path("regional/", view(index=Regional, allow_groups=True)),
    path("regional/board/", board()),
    path("allowing/board/", board(allow_groups=True)),
    path("pairs/board/", board(index=Pairs)),
    path("owners/board/", board(permission_classes=[IsAuthenticated, IsOwner])),
    path("owners-alone/board/", board(permission_classes=[IsOwner])),
    path("open/board/", board(permission_classes=[AllowAny])),
    path("linked/board/", board(serializer_class=LinkedEntry)),
    path("tracked/board/", board(extra_parameters=["utm_source"], filter_backends=[SearchFilter])),
    path("lenient/board/", board(allow_unknown=True)),
    path("searched/board/", board(**SEARCHED, serializer_class=PlayerSerializer)),
    path("searched/numbers/", board(**SEARCHED)),
    path("django-filter/board/", board(**FILTERED, filterset_class=Levels)),
    path("django-filter/fields/", board(**FILTERED, filterset_fields=["name"])),
    path("undescribed/board/", board(filter_backends=[Undescribed], serializer_class=PlayerSerializer)),
    path("versioned/board/", board(versioning_class=Versions)),
    path("musicians/board/", board(index=MusicianRank)),
    path("weeks/board/", board(index=WeekRank)),
    path(
        "weeks/this/board/", board(index=WeekRank, get_ranking=lambda view: WeekRank.ranking.filter(week=3))
    ),
    path("weeks/", view(index=WeekRank)),
    path("weeks/newest/board/", board(index=WeekRank, get_member=newest)),
    path("weeks/newest/", view(index=WeekRank, get_member=newest)),
    path("weeks/alike/board/", board(index=Alike)),
    path("weeks/alike/", view(index=Alike)),
    path("open/unranked/board/", board(permission_classes=[AllowAny], serializer_class=UnrankedSerializer)),
    path("open/rows/board/", board(permission_classes=[AllowAny], serializer_class=PlayerSerializer)),
    path("unkept/board/", board(permission_classes=[AllowAny], max_age=None)),
    path("counted/board/", board(serializer_class=Counted)),
    path("tied/board/", board(index=TiedRanks)),
    path("active/board/", board(index=Active)),
    path("active/", view(index=Active, member_permission_classes=[IsOwner | IsAdminUser])),
    path("musicians/", view(index=MusicianRank)),
    path("offset/board/", board(pagination_class=Offsets)),
    path("whole/board/", board(pagination_class=None)),
    path("kwarg/board/", board(lookup_url_kwarg="player")),
    path("name/board/", board(lookup_field="name", lookup_value_regex="[^/]+")),
    path(
        "befriended/board/",
        board(index=PlayerRank, get_queryset=lambda view: Player.objects.filter(friends__level__gt=0)),
    ),
    path("braces/board/", board(get_filters=lambda view: {"{name}": "bio"})),
    path("clash/board/", board(get_filters=lambda view: {"n": "bio"})),
    path("values/board/", board(index=Tied, serializer_class=AllValues)),
    path("kansai/board/", board(get_ranking=lambda view: Regional.ranking.filter(bio="kansai"))),
    path("nickname/board/", board(index=NicknameRank)),
    path("nickname/", view(Staff, index=NicknameRank)),
    *(
        path(f"{index.instance().name}/", view(Staff, index=index))
        for index in (ByInteger, ByReal, ByPrice, ByFlag, ByDay, ByMoment, BySpan)
    ),
]
