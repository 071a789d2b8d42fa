"""The tables and columns that an index reads, found from its queryset."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Count, Exists, F, FilteredRelation, IntegerField, Model, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.test.utils import isolate_apps

from django_zrank import RankIndex
from django_zrank.capture.watched_tables import unseen_tables, watched_tables
from tests.testapp.models import Account, Club, Employee, Host, Manager, Player, PlayerProxy, Profile

Read = dict[tuple[str, str], set[str] | None]


def probe(model: Any, order: str, queryset: QuerySet[Any] | None = None) -> RankIndex:
    attributes: dict[str, Any] = {"model": model, "order": (order,)}
    if queryset is not None:
        attributes["get_queryset"] = lambda self: queryset.all()
    return type("Probe", (RankIndex,), attributes)()


def read_by(model: Any, order: str, queryset: QuerySet[Any] | None = None) -> Read:
    """(model, path) -> names of the columns that such an index reads there, None for all."""
    return {
        (source.model.__name__, source.path): source.fields and {field.name for field in source.fields}
        for source in watched_tables(probe(model, order, queryset))
    }


@pytest.mark.parametrize(
    ("queryset", "more"),
    [
        (None, ()),
        (Player.objects.filter(is_active=True, name="x"), ("is_active", "name")),
        (Player.objects.exclude(name="x"), ("name",)),
        (Player.objects.filter(Q(name="x") | ~Q(name="y")), ("name",)),
        (Player.objects.filter(level=F("name")), ("name",)),
        (Player.objects.annotate(text=F("name")).filter(text="x"), ("name",)),
        # What decides neither score nor membership is not read.
        (Player.objects.order_by("name"), ()),
        (Player.objects.select_related("user"), ()),
        (Player.objects.only("bio"), ()),
    ],
)
def test_the_score_and_what_the_queryset_filters_on(
    queryset: QuerySet[Player] | None, more: tuple[str, ...]
) -> None:
    assert read_by(Player, "-level", queryset) == {("Player", ""): {"id", "level", *more}}
    assert read_by(PlayerProxy, "-level", queryset) == {("Player", ""): {"id", "level", *more}}


def test_related_tables_with_the_keys_that_lead_to_them() -> None:
    assert read_by(Account, "-profile__points", Account.objects.exclude(club__is_open=False)) == {
        ("Account", ""): {"id", "club"},
        ("Club", "club"): {"id", "is_open"},
        ("Profile", "profile"): {"account", "points"},
    }


def test_tables_further_away_and_those_that_are_counted() -> None:
    assert read_by(Club, "id", Club.objects.filter(account__profile__motto="go")) == {
        ("Club", ""): {"id"},
        ("Account", "account"): {"id", "club"},
        ("Profile", "account__profile"): {"account", "motto"},
    }
    queryset = Club.objects.annotate(size=Count("account")).filter(size__gt=1)
    assert read_by(Club, "id", queryset) == {("Club", ""): {"id"}, ("Account", "account"): {"id", "club"}}


def test_parents_by_inheritance() -> None:
    assert read_by(Employee, "-points", Employee.objects.filter(title="x")) == {
        ("Employee", ""): {"person_ptr", "title"},
        ("Person", "person_ptr"): {"id", "points"},
    }
    assert read_by(Manager, "-points") == {
        ("Manager", ""): {"employee_ptr"},
        ("Employee", "employee_ptr"): {"person_ptr"},
        ("Person", "employee_ptr__person_ptr"): {"id", "points"},
    }


def test_the_condition_of_a_join_is_read() -> None:
    joined = Account.objects.annotate(named=FilteredRelation("profile", condition=Q(profile__motto="go")))
    read = read_by(Account, "pk", joined.filter(named__points__gt=0))
    assert read["Profile", "profile"] == {"account", "points", "motto"}


# Where it can't be told, every column counts


@pytest.mark.parametrize(
    "queryset",
    [
        Account.objects.filter(Exists(Profile.objects.filter(account=OuterRef("pk"), motto="x"))),
        Account.objects.filter(Exists(Account.objects.filter(nick=OuterRef("profile__motto")))),
        Account.objects.filter(club__in=Club.objects.filter(is_open=True)),
        Account.objects.filter(pk__in=RawSQL("SELECT 1", ())),
        Account.objects.extra(where=["nick = 'x'"]),
    ],
    ids=["exists", "outer related column", "subquery", "raw sql", "extra"],
)
def test_a_subquery_or_raw_sql_may_read_any_column(queryset: QuerySet[Account]) -> None:
    read = read_by(Account, "-profile__points", queryset)
    assert read["Account", ""] is None
    assert read["Profile", "profile"] is None


@isolate_apps("tests.testapp")
def test_a_field_that_selects_more_than_its_column_may_read_any_column() -> None:
    class Both(IntegerField):  # type: ignore[type-arg]
        def select_format(self, compiler: Any, sql: str, params: Any) -> Any:
            return f"({sql} + lost)", params

    class Scored(Model):
        score = Both()
        lost = IntegerField()

        class Meta:
            app_label = "testapp"

    assert read_by(Scored, "lost") == {("Scored", ""): {"id", "lost"}}
    assert read_by(Scored, "score") == {("Scored", ""): None}


def test_excluding_over_many_rows_is_a_subquery() -> None:
    assert read_by(Club, "id", Club.objects.exclude(account__nick="x"))["Club", ""] is None


def test_a_subquery_of_the_members_own_row_is_read_as_if_it_were_joined() -> None:
    open_clubs = Account.objects.filter(club__is_open=True)
    for queryset in (
        Account.objects.filter(pk__in=open_clubs),
        Account.objects.filter(pk__in=open_clubs.values("pk")),
        Account.objects.filter(Exists(open_clubs.filter(pk=OuterRef("pk")))),
        Account.objects.exclude(pk__in=Account.objects.filter(pk__in=open_clubs)),
    ):
        index = probe(Account, "pk", queryset)
        assert read_by(Account, "pk", queryset)["Club", "club"] == {"id", "is_open"}
        assert unseen_tables(index) == set()


def test_any_other_subquery_reads_tables_that_lead_to_no_member() -> None:
    clubs = Club.objects.filter(is_open=True)
    for queryset, tables in (
        (Account.objects.filter(club__in=clubs, club__is_open=True), {"testapp_club"}),
        (Account.objects.filter(pk__in=Account.objects.filter(nick="x")[:3]), {"testapp_account"}),
        (Account.objects.filter(pk__in=Account.objects.values("club")), {"testapp_account"}),
        (Account.objects.filter(nick__in=Account.objects.values("nick")), {"testapp_account"}),
        (Account.objects.filter(Exists(Account.objects.filter(club=OuterRef("club")))), {"testapp_account"}),
        (
            Account.objects.filter(Exists(Account.objects.filter(Q(pk=OuterRef("pk")) | Q(nick="x")))),
            {"testapp_account"},
        ),
        (
            Account.objects.filter(pk__in=Account.objects.filter(club__in=clubs).order_by("nick")),
            {"testapp_club"},
        ),
        (Account.objects.filter(pk__in=Account.objects.union(Account.objects.all())), {"testapp_account"}),
        (Account.objects.extra(tables=["testapp_club"]), {"testapp_club"}),
    ):
        assert unseen_tables(probe(Account, "pk", queryset)) == tables, str(queryset.query)


def test_rows_that_may_lead_to_any_model_are_read_with_the_column_that_says_which() -> None:
    """Without a query: Django would look the content type up."""
    read = read_by(Host, "-load", Host.objects.filter(labels__word="red"))
    (labels,) = (fields for (model, _), fields in read.items() if model == "Label")
    assert labels == {"object_id", "content_type", "word"}


def test_every_column_counts_where_a_relation_has_a_condition_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relation = type(Account._meta.get_field("club"))
    monkeypatch.setattr(relation, "get_extra_restriction", lambda self, alias, related: None, raising=False)
    assert read_by(Account, "pk", Account.objects.filter(club__is_open=True))["Club", "club"] is None


def test_members_are_found_up_to_a_limit(django_assert_num_queries: Any, db: None) -> None:
    (club,) = (
        s for s in watched_tables(probe(Account, "pk", Account.objects.filter(club__is_open=True))) if s.path
    )
    first, second = Club.objects.create(), Club.objects.create()
    Account.objects.bulk_create(Account(club=club) for club in (first, second) for _ in range(3))
    texts = [str(first.pk), "no key", str(second.pk)]
    assert len(list(club.members_at(texts, "default"))) == 6
    with django_assert_num_queries(1):
        assert len(list(club.members_at(texts, "default", limit=4))) == 4


# Which saves touch a table


def test_a_save_of_all_fields_or_of_some_touches_by_name_or_column() -> None:
    (source,) = watched_tables(probe(Player, "level", Player.objects.filter(user__isnull=False)))
    assert source.touched_by(None)
    assert source.touched_by(frozenset({"bio", "user"}))
    assert source.touched_by(frozenset({"user_id"}))
    assert not source.touched_by(frozenset({"bio", "name"}))
    assert not source.touched_by(frozenset())


def test_any_save_touches_where_it_cant_be_told() -> None:
    opaque = Player.objects.filter(user__in=User.objects.filter(is_active=True))
    assert all(
        source.touched_by(frozenset({"bio"})) for source in watched_tables(probe(Player, "level", opaque))
    )
