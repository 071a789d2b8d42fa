"""What databases do behind an index's back: columns that raw SQL names, cascades, fences, nodes that lag, engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.models import (
    Case,
    ExpressionWrapper,
    F,
    Func,
    IntegerField,
    Lookup,
    Q,
    QuerySet,
    Transform,
    Value,
    When,
)
from django.db.models.expressions import CombinedExpression, Expression, RawSQL
from django.db.models.functions import Abs, Coalesce
from django.db.models.sql import Query
from redis import Redis

from django_zrank import RankIndex, register
from django_zrank.registry import registry
from tests.testapp.models import Competitor

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def only(*vendors: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(f"{connection.vendor!r} not in {vendors!r}", reason=f"on {', '.join(vendors)}")


def fetch(sql: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchone()[0]


def marks(index: type[RankIndex]) -> int:
    """The number of its marks that wait."""
    return int(
        fetch(f"SELECT count(*) FROM zrank_mark WHERE {connection.ops.quote_name('index')} = '{index.name}'")
    )


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def run(command: str, *args: Any, **options: Any) -> str:
    """Run a command, and return what it says, and what it complains of."""
    out = StringIO()
    with suppress(SystemExit):
        try:
            call_command(command, *args, stdout=out, stderr=out, **options)
        except CommandError as error:
            out.write(str(error))
    return out.getvalue()


@pytest.fixture
def declare(zrank: Redis) -> Iterator[Callable[..., type[RankIndex]]]:
    """Registers an index for this test, whose triggers are in place and which is built: a model, an order, others."""
    declared: list[type[RankIndex]] = []

    def add(model: Any, order: str, **attributes: Any) -> type[RankIndex]:
        attributes = {"model": model, "order": (order,), "name": f"outside-{len(declared)}", **attributes}
        declared.append(register(type("Outside", (RankIndex,), attributes)))
        run("sync_zrank", attributes["name"])
        return declared[-1]

    yield add
    for index in declared:
        registry.unregister(index)
        run("prune_zrank", index.name)


# Raw SQL, wherever Django takes some


class ByTemplate(Func):
    template = "(%(expressions)s + lost)"


class ByMethod(Abs):
    def as_sql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return super().as_sql(compiler, connection, template="%(function)s(lost)", **extra)


class ByVendor(Abs):
    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(compiler, connection, template="%(function)s(lost)", **extra)

    as_postgresql = as_mysql = as_sqlite


class Bare(Expression):
    output_field = IntegerField()

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        return "lost", []


class LostTransform(Transform):
    template = "(%(expressions)s * 0 + lost)"


class LostAbove(Lookup):
    lookup_name = "lost_above"

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        value, parameters = self.process_rhs(compiler, connection)
        return f"lost > {value}", parameters


class LostQuery(Query):
    def get_compiler(self, *args: Any, **kwargs: Any) -> Any:
        compiler = super().get_compiler(*args, **kwargs)
        as_sql = compiler.as_sql

        def with_lost(*args: Any, **kwargs: Any) -> Any:
            sql, parameters = as_sql(*args, **kwargs)
            return sql.replace("> 0", "* 0 + lost > 0").replace("> %s", "* 0 + lost > %s"), parameters

        compiler.as_sql = with_lost
        return compiler


def assigned() -> Func:
    function = Abs("points")
    function.template = "lost"
    return function


def number(expression: Any) -> Any:
    return ExpressionWrapper(expression, IntegerField())


EXPRESSIONS: dict[str, Callable[[], Any]] = {
    "template": lambda: Func(template="lost", output_field=IntegerField()),
    "template around an expression": lambda: Func(Value(0), template="(%(expressions)s + lost)"),
    "template within Django's own": lambda: Coalesce(Func(template="lost", output_field=IntegerField()), 0),
    "function": lambda: Func(Value(0), function="lost + abs", output_field=IntegerField()),
    "function with a quoted column": lambda: Abs(Value(0), function="lost * 1 + abs"),
    "arg_joiner": lambda: Func(F("points"), F("points"), arg_joiner=" * 0 + lost + 0 * ", function="abs"),
    "class with a template": lambda: ByTemplate(Value(0)),
    "class with a method": lambda: ByMethod("points"),
    "class with a method for a vendor": lambda: ByVendor("points"),
    "class of its own": Bare,
    "transform": lambda: LostTransform("points"),
    "assigned": assigned,
    "connector": lambda: CombinedExpression(F("points"), "* 0 + lost +", Value(0)),
    "case": lambda: Case(
        When(points__isnull=True, then=0), default=0, template="CASE %(cases)s ELSE %(default)s + lost END"
    ),
    "when": lambda: Case(When(points__isnull=False, then=ByTemplate(Value(0))), default=0),
    "raw": lambda: RawSQL("lost", ()),
    "wrapped": lambda: number(RawSQL("lost", ()) + 0),
}
"""Expressions whose value is the column ``lost``, which Django doesn't know."""

QUERYSETS: dict[str, Callable[[], QuerySet[Competitor]]] = {
    **{
        f"expression: {name}": lambda make=make: Competitor.objects.annotate(value=number(make())).filter(
            value__gt=0
        )
        for name, make in EXPRESSIONS.items()
    },
    "condition": lambda: Competitor.objects.filter(Q(points__gte=0) & Q(LostAbove(F("points"), 0))),
    "right side": lambda: Competitor.objects.exclude(points__gt=100 * number(RawSQL("lost", ())) - 1),
    "extra": lambda: Competitor.objects.extra(where=["lost > 0"]),
    "query": lambda: QuerySet(Competitor, query=LostQuery(Competitor)).filter(points__gt=0),
}


@pytest.mark.parametrize("name", QUERYSETS)
def test_a_column_that_raw_sql_names_is_watched(name: str, declare: Callable[..., type[RankIndex]]) -> None:
    rows = QUERYSETS[name]
    row = Competitor.objects.create(points=5, lost=0)
    other = Competitor.objects.create(points=6, lost=1)
    index = declare(Competitor, "-points", get_queryset=lambda self: rows())
    assert index.ranking.count() == rows().count() == 1
    run("sync_zrank", index.name)
    Competitor.objects.filter(pk__in=[row.pk, other.pk]).update(lost=3 - 3 * F("lost"))
    run("sync_zrank", index.name)
    assert [entry.pk for entry in index.ranking.top(5)] == list(rows().values_list("pk", flat=True))
    assert "differ" not in run("verify_zrank", index.name)


class Plus(Func):
    """A function of the project, by its name alone."""

    function = "abs"
    arity = 1
    output_field = IntegerField()


@pytest.mark.parametrize(
    "expression",
    [
        Abs("points"),
        Func(F("points"), function="abs"),
        Plus("points"),
        F("points") + 0,
        Coalesce("points", 0),
    ],
    ids=str,
)
def test_a_function_watches_its_arguments_alone(
    expression: Any, declare: Callable[..., type[RankIndex]]
) -> None:
    Competitor.objects.create(points=5)
    rows = Competitor.objects.annotate(value=expression).filter(value__gt=0)
    index = declare(Competitor, "-total", get_queryset=lambda self: rows.all())
    run("sync_zrank", index.name)
    Competitor.objects.update(lost=1)
    assert marks(index) == 0
    Competitor.objects.update(points=6)
    assert marks(index) > 0
