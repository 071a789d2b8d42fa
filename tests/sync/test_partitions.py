"""Tables that are written by another table's name: PostgreSQL's partitions and inheritance children."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, models, transaction

from django_zrank import RankIndex
from django_zrank.exceptions import CaptureError
from django_zrank.models import Mark
from django_zrank.registry import registry
from django_zrank.sync import triggers
from django_zrank.sync.health import Verdict, examine
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from tests.sync.capturing import installed, marks, only
from tests.sync.mirror import assert_mirrors
from tests.torture.databases import PostgreSQL

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
    only("postgresql"),
]

PARTITIONED = [
    "CREATE TABLE part (id int PRIMARY KEY, score int) PARTITION BY RANGE (id)",
    "CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (1) TO (100)",
    "CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id)",
    "CREATE TABLE part_2a PARTITION OF part_2 FOR VALUES FROM (100) TO (150)",
    "CREATE TABLE part_2b PARTITION OF part_2 FOR VALUES FROM (150) TO (200)",
]
INHERITED = [
    "CREATE TABLE part (id int PRIMARY KEY, score int)",
    "CREATE TABLE part_1 (more int) INHERITS (part)",
    "CREATE TABLE part_2 () INHERITS (part)",
    "CREATE TABLE part_2a () INHERITS (part_2)",
]


def execute(*statements: str) -> None:
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.fixture
def ranked(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RankIndex]]:
    """Makes tables, and ranks one of them by ``score``; no other index is registered."""
    before = dict(apps.all_models["testapp"])

    def make(statements: list[str], table: str = "part") -> RankIndex:
        execute(*statements)
        name = f"Ranked{len(apps.all_models['testapp'])}"
        meta = type("Meta", (), {"app_label": "testapp", "db_table": table, "managed": False})
        fields = {"id": models.IntegerField(primary_key=True), "score": models.IntegerField(null=True)}
        model = type(name, (models.Model,), {**fields, "Meta": meta, "__module__": __name__})
        index = type("PartRank", (RankIndex,), {"name": "part", "model": model, "order": ("-score",)})
        monkeypatch.setattr(registry, "_classes", {index: None})
        triggers.install("default", triggers.captured("default"))
        rebuild(index.instance())
        Mark.objects.all().delete()
        return index.instance()

    yield make
    triggers.drop("default", ["part"])
    execute("DROP TABLE IF EXISTS part, part_1, part_2, part_2a, part_2b, apart CASCADE")
    for name in apps.all_models["testapp"].keys() - before.keys():
        del apps.all_models["testapp"][name]
    monkeypatch.undo()
    Mark.objects.all().delete()


def healthy(index: RankIndex) -> bool:
    return examine(index) is Verdict.HEALTHY and not Mark.objects.filter(index=index.name).exists()


def mended(index: RankIndex) -> None:
    """It isn't believed, and right after a sync."""
    assert not healthy(index)
    sync(index)
    assert healthy(index)
    assert_mirrors(type(index))


@pytest.mark.parametrize("table", ["part", "part_2", "part_2a"])
@pytest.mark.parametrize("kind", [PARTITIONED, INHERITED], ids=["partitioned", "inherited"])
def test_a_write_by_the_name_of_any_of_them(
    ranked: Callable[..., RankIndex], kind: list[str], table: str
) -> None:
    index = ranked(kind)
    execute(f"INSERT INTO {table} VALUES (120, 1), (121, 1)")
    assert marks("part") == ["120", "121"]
    execute(f"UPDATE {table} SET score = 2 WHERE id = 120")
    assert marks("part") == ["120"]
    execute(f"UPDATE {table} SET score = 2 WHERE id = 120")
    assert marks("part") == []
    execute(f"UPDATE {table} SET id = id + 10")
    assert marks("part") == ["120", "121", "130", "131"]
    execute(f"DELETE FROM {table} WHERE id = 130")
    assert marks("part") == ["130"]
    execute(f"TRUNCATE {table}")
    assert set(marks("part")) == {None}
    assert not triggers.examine_capture(index).missing


def test_a_row_that_moves_to_another_partition(ranked: Callable[..., RankIndex]) -> None:
    ranked(PARTITIONED)
    execute("INSERT INTO part VALUES (1, 1)")
    marks("part")
    execute("UPDATE part SET id = 120 WHERE id = 1")
    assert set(marks("part")) == {"1", "120"}


@pytest.mark.parametrize("root", PARTITIONED[:1] + INHERITED[:1], ids=["partitioned", "inherited"])
def test_a_partition_that_is_ranked_and_written_by_the_name_of_the_whole(
    ranked: Callable[..., RankIndex], root: str
) -> None:
    part = PARTITIONED[1] if "PARTITION" in root else INHERITED[2].replace("part_2", "part_1")
    ranked([root, part], table="part_1")
    execute(f"INSERT INTO {'part' if 'PARTITION' in root else 'part_1'} VALUES (7, 1)")
    assert marks("part") == ["7"]
    execute("UPDATE part SET score = 2")
    assert marks("part") == ["7"]
    execute("TRUNCATE part")
    assert marks("part") == [None]


@pytest.mark.parametrize(
    "change",
    [
        [
            "CREATE TABLE apart (id int PRIMARY KEY, score int)",
            "INSERT INTO apart VALUES (210, 1)",
            "ALTER TABLE part ATTACH PARTITION apart FOR VALUES FROM (200) TO (300)",
        ],
        ["ALTER TABLE part DETACH PARTITION part_1"],
        ["DROP TABLE part_1"],
        ["ALTER TABLE part_2 DETACH PARTITION part_2a"],
        [  # the same set again, with a row that nobody has seen
            "ALTER TABLE part DETACH PARTITION part_1",
            "UPDATE part_1 SET score = 9",
            "ALTER TABLE part ATTACH PARTITION part_1 FOR VALUES FROM (1) TO (100)",
        ],
        ["ALTER TABLE part_2a DISABLE TRIGGER USER", "UPDATE part_2a SET score = 9"],
    ],
)
def test_partitions_that_come_and_go(ranked: Callable[..., RankIndex], change: list[str]) -> None:
    index = ranked(PARTITIONED)
    execute("INSERT INTO part VALUES (1, 1), (120, 1), (160, 1)")
    sync(index)
    assert healthy(index)
    execute(*change)
    mended(index)
    execute("UPDATE part SET score = 11")
    sync(index)
    assert_mirrors(type(index))
    assert healthy(index)


@pytest.mark.parametrize(
    "change",
    [
        ["ALTER TABLE part_1 NO INHERIT part"],
        ["CREATE TABLE apart () INHERITS (part)", "INSERT INTO apart VALUES (9, 9)"],
        [
            "CREATE TABLE apart (LIKE part)",
            "INSERT INTO apart VALUES (9, 9)",
            "ALTER TABLE apart INHERIT part",
        ],
        ["DROP TABLE part_2 CASCADE"],
    ],
)
def test_children_that_come_and_go(ranked: Callable[..., RankIndex], change: list[str]) -> None:
    index = ranked(INHERITED)
    execute("INSERT INTO part_1 VALUES (1, 1)", "INSERT INTO part_2a VALUES (2, 2)")
    sync(index)
    assert healthy(index)
    execute(*change)
    mended(index)


def test_what_a_changed_set_leaves_behind_goes_when_somebody_migrates(
    ranked: Callable[..., RankIndex],
) -> None:
    index = ranked(PARTITIONED)
    before = installed()
    execute("ALTER TABLE part DETACH PARTITION part_1")
    sync(index)
    assert triggers.status("default", [index]).outdated
    triggers.install("default", [index])
    assert not triggers.status("default", [index]).outdated
    assert len(installed()) < len(before)


def test_a_set_of_partitions_that_returns(ranked: Callable[..., RankIndex]) -> None:
    """Attached and detached again: what was ranked meanwhile is not, though no trigger ran."""
    index = ranked(PARTITIONED)
    execute("CREATE TABLE apart (id int PRIMARY KEY, score int)", "INSERT INTO apart VALUES (201, 7)")
    for statement, members in [
        ("ALTER TABLE part ATTACH PARTITION apart FOR VALUES FROM (200) TO (300)", 1),
        ("ALTER TABLE part DETACH PARTITION apart", 0),
    ]:
        execute(statement)
        assert examine(index) is Verdict.UNCAPTURED
        sync(index)
        assert (examine(index), index.ranking.count()) == (Verdict.HEALTHY, members)
    assert_mirrors(type(index))


def test_a_table_that_is_restored_with_its_triggers(ranked: Callable[..., RankIndex]) -> None:
    """Of its rows nothing was marked since."""
    index = ranked(INHERITED[:1])
    execute("INSERT INTO part VALUES (1, 5), (2, 6)")
    database = connection.settings_dict
    place = ["-h", database["HOST"], "-U", database["USER"], "-d", database["NAME"]]
    command = [PostgreSQL.program("pg_dump"), *place, "--table=part", "--clean"]
    dump = subprocess.run(command, check=True, capture_output=True).stdout
    execute("UPDATE part SET score = 9", "DELETE FROM part WHERE id = 2")
    sync(index)
    assert (index.ranking.count(), examine(index)) == (1, Verdict.HEALTHY)
    command = [PostgreSQL.program("psql"), *place, "--quiet", "--set=ON_ERROR_STOP=1"]
    subprocess.run(command, check=True, input=dump, capture_output=True)
    assert installed("default"), "the triggers came with it"
    assert examine(index) is Verdict.UNCAPTURED
    sync(index)
    assert examine(index) is Verdict.HEALTHY
    assert_mirrors(type(index))
    assert index.ranking.score(2) == 6


def test_triggers_are_made_without_holding_up_writers(
    ranked: Callable[..., RankIndex], elsewhere: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction is open. Whoever waits for its table would make all later writers wait."""
    monkeypatch.setattr(triggers, "_PATIENCE", 0.0)
    ranked(INHERITED[:1])
    execute("INSERT INTO part VALUES (1, 5)")
    triggers.drop("default", ["part"])
    with transaction.atomic():
        execute("UPDATE part SET score = 6")
        with pytest.raises(CaptureError, match="lock timeout"):
            elsewhere(triggers.install, "default", triggers.captured("default"))
    assert triggers.install("default", triggers.captured("default")).created


def test_a_column_that_the_owner_of_the_table_renames(ranked: Callable[..., RankIndex]) -> None:
    """Every save would fail, by a trigger that names the former one."""
    index = ranked(INHERITED[:1])
    execute("INSERT INTO part VALUES (1, 5)", "ALTER TABLE part RENAME score TO points")
    with pytest.raises(DatabaseError):
        execute("UPDATE part SET points = 6")
    assert examine(index) is Verdict.UNCAPTURED
    with suppress(DatabaseError):  # rows can't be read by the former name
        sync(index)
    execute("UPDATE part SET points = 7")
    assert examine(index) is Verdict.UNCAPTURED, "changes of the new column go unnoticed"
    execute("ALTER TABLE part RENAME points TO score")
    sync(index)
    assert examine(index) is Verdict.HEALTHY
    assert index.ranking.score(1) == 7
