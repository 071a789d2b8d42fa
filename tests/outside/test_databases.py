"""What databases do behind an index's back: columns that raw SQL names, cascades, fences, nodes that lag, engines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, connection, models
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
from django.test.utils import isolate_apps
from redis import Redis

from django_zrank import RankIndex, register
from django_zrank.embedded import EmbeddedServer
from django_zrank.registry import registry
from tests.galera import PROVIDER, Node
from tests.projects import LIVE, SETTINGS, Project
from tests.settings import DATABASE
from tests.testapp.models import Competitor
from tests.torture.databases import DatabaseServer, MariaDB, PostgreSQL

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

WITHOUT_TRANSACTIONS = "MyISAM" if DATABASE == "mysql" else "Aria"


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


# What the database says of itself


@pytest.fixture(scope="module")
def server() -> Iterator[DatabaseServer]:
    """A database server of the tests' own, whose settings nobody else shares."""
    if DATABASE == "mysql":
        pytest.skip("the server that would be started is MariaDB")
    with TemporaryDirectory(prefix="zrank-") as name:
        Path(name).chmod(0o755)
        server = {"postgresql": PostgreSQL, "mysql": MariaDB}[connection.vendor](Path(name))
        server.private = True
        server.start()
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def own(server: DatabaseServer, zrank: Redis) -> Iterator[None]:
    """Let the default database be on that server."""
    before = connection.settings_dict
    connection.close()
    connection.settings_dict = {
        **before,
        "HOST": str(server.socket),
        "PORT": "",
        "USER": server.user,
        "PASSWORD": "",
    }
    admin = connection.copy("admin")
    admin.settings_dict["NAME"] = {"postgresql": "postgres", "mysql": None}[connection.vendor]
    name = connection.ops.quote_name(before["NAME"])
    with admin.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        cursor.execute(f"CREATE DATABASE {name}")
    admin.close()
    call_command("migrate", run_syncdb=True, verbosity=0)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict = before


FENCES = {
    "postgresql": {
        "default_transaction_read_only": (
            ["ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"],
            [
                "SET default_transaction_read_only = off",
                "ALTER SYSTEM RESET default_transaction_read_only",
                "SELECT pg_reload_conf()",
            ],
            "SHOW default_transaction_read_only",
        )
    },
    "mysql": {
        name: ([f"SET GLOBAL {name} = 1"], [f"SET GLOBAL {name} = 0"], f"SELECT @@global.{name}")
        for name in ("read_only", "tx_read_only")
    },
    "sqlite": {},
}[connection.vendor]
"""What an operator does to fence a primary, and to release it; and the query that tells whether a session knows."""


@only("postgresql")
def test_a_session_that_may_not_write_is_not_read(declare: Callable[..., type[RankIndex]]) -> None:
    """As after the operator's reload, quickly."""
    row = Competitor.objects.create(points=5)
    index = declare(Competitor, "-points")
    run("sync_zrank", index.name)
    Competitor.objects.update(points=6)
    execute("SET default_transaction_read_only = on")
    try:
        assert "takes no writes" in run("sync_zrank", index.name)
        assert index.ranking.score(row.pk) == 5
    finally:
        execute("SET default_transaction_read_only = off")
    run("sync_zrank", index.name)
    assert index.ranking.score(row.pk) == 6


@only("postgresql")
def test_a_fence_is_noticed_where_no_mark_waits(declare: Callable[..., type[RankIndex]]) -> None:
    """Marks wait elsewhere, at the new primary: a worker that stays here, content, would leave them there for ever."""
    Competitor.objects.create(points=5)
    index = declare(Competitor, "-points")
    run("sync_zrank", index.name)
    assert marks(index) == 0
    execute("SET default_transaction_read_only = on")
    try:
        assert "takes no writes" in run("sync_zrank", index.name)
    finally:
        execute("SET default_transaction_read_only = off")
    assert "takes no writes" not in run("sync_zrank", index.name)


@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.parametrize("name", FENCES)
@pytest.mark.usefixtures("own")
def test_a_primary_that_is_fenced_is_not_read(name: str, declare: Callable[..., type[RankIndex]]) -> None:
    """The connection was opened before. A mark waits there; elsewhere, the row may have changed since."""
    fence, release, known = FENCES[name]
    row = Competitor.objects.create(points=5)
    index = declare(Competitor, "-points")
    run("sync_zrank", index.name)
    Competitor.objects.update(points=6)
    operator = connection.copy("operator")
    try:
        with operator.cursor() as cursor:
            for statement in fence:
                cursor.execute(statement)
        while fetch(known) not in ("on", 1):
            pass
        assert "takes no writes" in run("sync_zrank", index.name)
        assert index.ranking.score(row.pk) == 5
        with operator.cursor() as cursor:
            for statement in release:
                cursor.execute(statement)
        while fetch(known) not in ("off", 0):
            pass
        run("sync_zrank", index.name)
        assert index.ranking.score(row.pk) == 6
    finally:
        operator.close()


@only("mysql")
def test_tables_of_ours_in_an_engine_without_transactions(declare: Callable[..., type[RankIndex]]) -> None:
    """Every one of them, in turn."""
    index = declare(Competitor, "-points")

    def status() -> str:
        return str(json.loads(run("zrank_status", index.name, json=True))[index.name]["status"])

    assert "E046" not in run("check", databases=["default"])
    assert status() == "HEALTHY"
    with connection.cursor() as cursor:
        tables = {name for name in connection.introspection.table_names(cursor) if name.startswith("zrank_")}
    assert tables == {"zrank_mark", "zrank_batch", "zrank_build", "zrank_job", "zrank_capture"}
    if DATABASE == "mysql":
        tables = {"zrank_mark"}  # the only one whose keys aren't too long for MyISAM
    for table in sorted(tables - {"zrank_job"}):  # a job is written alone
        execute(f"ALTER TABLE {table} ENGINE={WITHOUT_TRANSACTIONS}")
        try:
            said = run("check", databases=["default"])
            assert f"zrank.E046) Database 'default': {table} has the engine {WITHOUT_TRANSACTIONS}" in said
            assert status() == "TRIGGERS_MISSING"
            assert table in run("sync_zrank", index.name)
        finally:
            execute(f"ALTER TABLE {table} ENGINE=InnoDB")
    assert status() == "HEALTHY"


@only("mysql")
def test_tables_of_ours_without_transactions_where_receivers_leave_marks(
    settings: Any, declare: Callable[..., type[RankIndex]]
) -> None:
    """Marks that receivers leave have to be rolled back with their change, too."""
    settings.ZRANK = {"CAPTURE": "signals"}
    declare(Competitor, "-points")
    assert "E046" not in run("check", databases=["default"])
    execute(f"ALTER TABLE zrank_mark ENGINE={WITHOUT_TRANSACTIONS}")
    try:
        said = run("check", databases=["default"])
        assert f"zrank.E046) Database 'default': zrank_mark has the engine {WITHOUT_TRANSACTIONS}" in said
    finally:
        execute("ALTER TABLE zrank_mark ENGINE=InnoDB")


@only("mysql")
def test_rows_that_a_constraint_deletes(declare: Callable[..., type[RankIndex]]) -> None:
    """MariaDB and MySQL run no triggers for it."""
    execute(
        "CREATE TABLE outside_owner (id int PRIMARY KEY)",
        "CREATE TABLE outside_pet (id int PRIMARY KEY, score int, owner int,"
        " CONSTRAINT outside_key FOREIGN KEY (owner) REFERENCES outside_owner (id) ON DELETE CASCADE)",
    )
    try:
        with isolate_apps("tests.testapp"):

            class Pet(models.Model):
                id = models.IntegerField(primary_key=True)
                score = models.IntegerField()

                class Meta:
                    app_label, db_table, managed = "testapp", "outside_pet", False

        index = declare(Pet, "-score")
        said = run("check", databases=["default"])
        assert "can't watch outside_pet, which loses rows by the key outside_key ON DELETE CASCADE" in said
        assert '"TRIGGERS_MISSING"' in run("zrank_status", index.name, json=True)
        assert "outside_key" in run("sync_zrank", index.name)
    finally:
        execute("DROP TABLE outside_pet", "DROP TABLE outside_owner")


class _Action:
    """What Django 6.1 has, for earlier versions."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *args: Any) -> None: ...

    def on_delete_sql(self, editor: Any) -> str:
        raise NotImplementedError


ACTIONS = {
    name: getattr(models, name, _Action(name)) for name in ("DB_CASCADE", "DB_SET_NULL", "DB_SET_DEFAULT")
}


def watched_by(action: Any) -> dict[str, tuple[type[models.Model], str, dict[str, Any]]]:
    """Indexes that read a table one of whose keys has this action: the model, the order, and the filter."""
    with isolate_apps("tests.testapp"):
        meta = type("Meta", (), {"app_label": "testapp"})

        def model(name: str, *bases: type[models.Model], **fields: Any) -> Any:
            attributes = {"Meta": meta, "__module__": __name__, **fields}
            return type(name, bases or (models.Model,), attributes)

        def key() -> Any:
            return models.ForeignKey(owner, action, null=True, db_column="owner")

        owner = model("OutsideOwner")
        pet = model("OutsidePet", points=IntegerField(), owner=key())
        animal = model("OutsideAnimal", points=IntegerField(), owner=key())
        dog = model("OutsideDog", animal)
        home = model("OutsideHome", size=IntegerField(), owner=key())
        cat = model("OutsideCat", home=models.ForeignKey(home, models.DO_NOTHING))
        toy = model("OutsideToy")
        toy_of = model("OutsideToyOf", toy=models.ForeignKey(toy, models.DO_NOTHING), owner=key())
        toy.add_to_class("owners", models.ManyToManyField(owner, through=toy_of))
        return {
            "not read": (pet, "-points", {}),
            "the index's own": (pet, "-points", {"owner__gt": 0}),
            "a parent's": (dog, "-points", {"owner__gt": 0}),
            "on the path": (cat, "-home__size", {"home__owner__gt": 0}),
            "of a through table": (toy, "pk", {"owners__gt": 0}),
        }


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", watched_by(models.DO_NOTHING))
def test_a_key_whose_rows_the_database_deletes(action: str, name: str) -> None:
    model, order, conditions = watched_by(ACTIONS[action])[name]
    rows = model._base_manager.filter(**conditions)
    index = register(
        type("Outside", (RankIndex,), {"model": model, "order": (order,), "get_queryset": lambda self: rows})
    )
    try:
        said = run("check")
        refused = f"owner has on_delete={action}, for which this database runs no triggers"
        # A key that isn't read may be set to null, but it deletes rows.
        is_refused = connection.vendor == "mysql" and (name != "not read" or action == "DB_CASCADE")
        assert (refused in said) is is_refused, said
    finally:
        registry.unregister(index)


@pytest.mark.skipif(not hasattr(models, "DB_CASCADE"), reason="since Django 6.1")
@only("sqlite", "postgresql")
def test_rows_that_the_database_deletes_for_django(declare: Callable[..., type[RankIndex]]) -> None:
    """PostgreSQL and SQLite run triggers for it."""
    pet, order, _ = watched_by(models.DB_CASCADE)["the index's own"]
    owner = pet._meta.get_field("owner").related_model
    with connection.schema_editor() as editor:
        editor.create_model(owner)
        editor.create_model(pet)
    try:
        someone = owner._base_manager.create()
        pet._base_manager.create(points=3, owner=someone)
        index = declare(pet, order)
        assert index.ranking.count() == 1
        someone.delete()
        run("sync_zrank", index.name)
        assert index.ranking.count() == 0
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(pet)
            editor.delete_model(owner)


# SQLite's only writer

SAVES = """
from time import monotonic
from django.db import OperationalError, connection, transaction
from players.models import Player
row, failed, began = Player.objects.first(), 0, monotonic()
for level in range(150):
    try:
        with transaction.atomic():
            row.refresh_from_db()
            row.level = level
            row.save()
    except OperationalError:
        failed += 1
with connection.cursor() as cursor:
    cursor.execute("SELECT count(*) FROM zrank_batch")
    print(failed, cursor.fetchone()[0], monotonic() - began)
"""


@pytest.mark.slow
@only("sqlite")
def test_a_worker_writes_seldom(tmp_path: Path) -> None:
    """Each of its writes may fail a transaction that has read."""
    wal = SETTINGS.replace('sqlite3"}', 'sqlite3", "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL"}}')
    with EmbeddedServer() as server:
        project = Project(tmp_path, server.url, {"settings.py": wal})
        assert "zrank.W009" in project.run("-m", "django", "check", "--database", "default")
        with subprocess.Popen(
            [sys.executable, "-m", "django", "sync_zrank", "--watch", "--interval", "1"],
            cwd=project.folder,
            env=project.environment,
            stdout=subprocess.DEVNULL,
        ) as worker:
            try:
                with Redis.from_url(server.url) as client:
                    while not any(client.scan_iter("*watcher*")):
                        assert worker.poll() is None
                failed, batches, seconds = map(float, project.shell(SAVES).split())
            finally:
                worker.terminate()
    assert batches <= seconds + 2
    assert failed <= 15  # half of them, if it polls as often as elsewhere


@only("sqlite")
def test_immediate_transactions_are_not_warned_about() -> None:
    """As in the settings of these tests."""
    assert "W009" not in run("check", databases=["default", "other"])


# A Galera cluster


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[Node]]:
    with TemporaryDirectory(prefix="zrank-") as one, TemporaryDirectory(prefix="zrank-") as other:
        nodes: list[Node] = []
        try:
            for name in (one, other):
                Path(name).chmod(0o755)
                nodes.append(Node(Path(name), *nodes[:1]))
                nodes[-1].start()
            yield nodes
        finally:
            for node in reversed(nodes):
                node.stop()


@pytest.fixture
def lagging(
    nodes: list[Node], zrank: Redis, request: pytest.FixtureRequest, declare: Callable[..., type[RankIndex]]
) -> Iterator[tuple[type[RankIndex], Any, Any]]:
    """An index whose worker, this process, uses a node that has a mark of a change, and none of what the other node
    has committed since: the index, its row, and a connection that lets the node catch up. In Redis, the row has 5
    points, here 6, there 7."""
    before = connection.settings_dict
    connection.close()
    here = {"HOST": str(nodes[1].socket), "PORT": "", "USER": "root", "PASSWORD": "", "NAME": "zrank_galera"}
    connection.settings_dict = {**before, **here, "OPTIONS": {**before["OPTIONS"], **request.param}}
    nodes[1].ask("DROP DATABASE IF EXISTS zrank_galera; CREATE DATABASE zrank_galera")
    there, holder = connection.copy("there"), connection.copy("holder")
    there.settings_dict["HOST"] = str(nodes[0].socket)
    try:
        call_command("migrate", run_syncdb=True, verbosity=0)
        row = Competitor.objects.create(points=5)
        connection.settings_dict["OPTIONS"] = {"init_command": "SET SESSION wsrep_sync_wait = 1"}
        connection.close()
        index = declare(Competitor, "-points")
        run("sync_zrank", index.name)
        assert index.ranking.score(row.pk) == 5
        with there.cursor() as cursor:
            cursor.execute("UPDATE testapp_competitor SET points = 6")
        assert fetch("SELECT points FROM testapp_competitor") == 6
        connection.settings_dict["OPTIONS"] = {**before["OPTIONS"], **request.param}
        connection.close()
        with holder.cursor() as cursor:
            cursor.execute("SET GLOBAL wsrep_desync = ON")
            cursor.execute("FLUSH TABLES WITH READ LOCK")
        with there.cursor() as cursor:
            cursor.execute("UPDATE testapp_competitor SET points = 7")
        yield index, row, holder
    finally:
        with suppress(DatabaseError):  # closed by the test
            holder.close()
        there.close()
        nodes[1].ask("SET GLOBAL wsrep_desync = OFF")
        connection.close()
        connection.settings_dict = before


ON_A_NODE = """{"default": {
    "ENGINE": "django.db.backends.mysql",
    "NAME": "zrank_workers",
    "HOST": os.environ["NODE"],
    "USER": "root",
    "OPTIONS": {"init_command": "SET SESSION wsrep_sync_wait = 1"},
}}"""

needs_galera = [
    pytest.mark.slow,
    pytest.mark.skipif(DATABASE != "mariadb" or not PROVIDER.exists(), reason="needs MariaDB and Galera"),
]


class TestGalera:
    pytestmark = needs_galera

    @pytest.mark.parametrize("lagging", [{}], indirect=True)
    def test_a_node_whose_reads_do_not_wait_is_refused(self, lagging: Any) -> None:
        index, row, _ = lagging
        assert fetch("SELECT points FROM testapp_competitor") == 6, "it lags"
        assert "zrank.E047" in run("check", databases=["default"])
        assert "wsrep_sync_wait" in run("sync_zrank", index.name)
        with pytest.raises(DatabaseError, match="wsrep_sync_wait"):
            run("rebuild_zrank", index.name)
        assert index.ranking.score(row.pk) == 5

    @pytest.mark.parametrize("lagging", [{"init_command": "SET SESSION wsrep_sync_wait = 1"}], indirect=True)
    def test_a_node_whose_reads_wait_catches_up(self, lagging: Any) -> None:
        index, row, holder = lagging
        Timer(1, lambda: holder.connection.close()).start()
        assert "zrank.E047" not in run("check", databases=["default"])
        run("sync_zrank", index.name)
        assert index.ranking.score(row.pk) == 7

    def test_workers_on_two_nodes_take_no_turns(self, nodes: list[Node], tmp_path: Path) -> None:
        """Each finds the triggers and the build of the other to be its own."""
        nodes[0].ask("DROP DATABASE IF EXISTS zrank_workers; CREATE DATABASE zrank_workers")
        sqlite = '{"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "live.sqlite3"}}'
        with EmbeddedServer() as server:
            files = {"settings.py": SETTINGS.replace(sqlite, ON_A_NODE)}
            listed = (
                "SELECT trigger_name, created FROM information_schema.triggers"
                " WHERE trigger_schema = 'zrank_workers'"
            )
            project = Project(tmp_path, server.url, files, live=False)
            project.run("-c", f"import django; django.setup()\n{LIVE}", NODE=str(nodes[0].socket))
            found, triggers = set(), set()
            for turn in range(6):
                here, there = (str(nodes[at].socket) for at in (turn % 2, 1 - turn % 2))
                nodes[1 - turn % 2].ask("UPDATE zrank_workers.players_player SET level = level + 1")
                project.run("-m", "django", "sync_zrank", NODE=here)
                state = json.loads(project.run("-m", "django", "zrank_status", "--json", NODE=there))[
                    "player"
                ]
                found.add((state["status"], state["waiting"], state["build"]))
                triggers |= {
                    (at, line) for at, node in enumerate(nodes) for line in node.ask(listed).splitlines()
                }
            ((status, waiting, _),) = found
            assert (status, waiting) == ("HEALTHY", 0)
            names = [{line.split()[0] for node, line in triggers if node == at} for at in range(2)]
            assert names[0] == names[1]
            assert len(triggers) == 2 * len(names[0]) > 6  # each was created once
            project.run("-m", "django", "verify_zrank", NODE=str(nodes[1].socket))
