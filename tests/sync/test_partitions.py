"""Tables that are written by another table's name: PostgreSQL's partitions and inheritance children."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from django_zrank import RankIndex
from django_zrank.capture import triggers
from django_zrank.exceptions import CaptureError
from django_zrank.models import Mark
from django_zrank.sync.health import Status, examine
from django_zrank.sync.rebuild import rebuild
from django_zrank.sync.watch import sync
from tests.sync.capturing import install, installed, marks, only
from tests.sync.conftest import execute
from tests.sync.mirror import assert_mirrors

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


@pytest.fixture
def ranked(rank_table: Callable[..., type[RankIndex]]) -> Callable[..., RankIndex]:
    """Makes tables, and ranks one of them."""

    def make(statements: list[str], table: str = "part") -> RankIndex:
        index = rank_table(*statements, name=table).instance()
        install()
        rebuild(index)
        Mark.objects.all().delete()
        return index

    return make


def healthy(index: RankIndex) -> bool:
    return examine(index) is Status.HEALTHY and not Mark.objects.filter(index=index.name).exists()


@pytest.mark.parametrize("table", ["part", "part_2", "part_2a"])
@pytest.mark.parametrize("kind", [PARTITIONED, INHERITED], ids=["partitioned", "inherited"])
def test_a_write_by_the_name_of_any_of_them(
    ranked: Callable[..., RankIndex], kind: list[str], table: str
) -> None:
    index = ranked(kind)
    execute(f"INSERT INTO {table} VALUES (120, 1), (121, 1)")
    assert marks("watched") == ["120", "121"]
    execute(f"UPDATE {table} SET score = 2 WHERE id = 120")
    assert marks("watched") == ["120"]
    execute(f"UPDATE {table} SET score = 2 WHERE id = 120")
    assert marks("watched") == []
    execute(f"UPDATE {table} SET id = id + 10")
    assert marks("watched") == ["120", "121", "130", "131"]
    execute(f"DELETE FROM {table} WHERE id = 130")
    assert marks("watched") == ["130"]
    execute(f"TRUNCATE {table}")
    assert set(marks("watched")) == {None}
    assert not triggers.examine_capture(index).missing


def test_a_row_that_moves_to_another_partition(ranked: Callable[..., RankIndex]) -> None:
    ranked(PARTITIONED)
    execute("INSERT INTO part VALUES (1, 1)")
    marks("watched")
    execute("UPDATE part SET id = 120 WHERE id = 1")
    assert set(marks("watched")) == {"1", "120"}


@pytest.mark.parametrize("root", PARTITIONED[:1] + INHERITED[:1], ids=["partitioned", "inherited"])
def test_a_partition_that_is_ranked_and_written_by_the_name_of_the_whole(
    ranked: Callable[..., RankIndex], root: str
) -> None:
    part = PARTITIONED[1] if "PARTITION" in root else INHERITED[2].replace("part_2", "part_1")
    ranked([root, part], table="part_1")
    execute(f"INSERT INTO {'part' if 'PARTITION' in root else 'part_1'} VALUES (7, 1)")
    assert marks("watched") == ["7"]
    execute("UPDATE part SET score = 2")
    assert marks("watched") == ["7"]
    execute("TRUNCATE part")
    assert marks("watched") == [None]


PARTITIONS = [
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
]
CHILDREN = [
    ["ALTER TABLE part_1 NO INHERIT part"],
    ["CREATE TABLE apart () INHERITS (part)", "INSERT INTO apart VALUES (9, 9)"],
    [
        "CREATE TABLE apart (LIKE part)",
        "INSERT INTO apart VALUES (9, 9)",
        "ALTER TABLE apart INHERIT part",
    ],
    ["DROP TABLE part_2 CASCADE"],
]


@pytest.mark.parametrize(
    ("kind", "change"),
    [*((PARTITIONED, change) for change in PARTITIONS), *((INHERITED, change) for change in CHILDREN)],
)
def test_partitions_and_children_that_come_and_go(
    ranked: Callable[..., RankIndex], kind: list[str], change: list[str]
) -> None:
    index = ranked(kind)
    execute("INSERT INTO part_1 VALUES (1, 1)", "INSERT INTO part_2a VALUES (120, 1)")
    sync(index)
    assert healthy(index)
    execute(*change)
    assert not healthy(index)
    sync(index)
    assert_mirrors(type(index))
    execute("UPDATE part SET score = 11")
    sync(index)
    assert healthy(index)
    assert_mirrors(type(index))


def test_what_a_changed_set_leaves_behind_goes(ranked: Callable[..., RankIndex]) -> None:
    index = ranked(PARTITIONED)
    before = installed()
    execute("ALTER TABLE part DETACH PARTITION part_1")
    sync(index)
    assert not triggers.examine_triggers("default", [index]).outdated
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
        assert examine(index) is Status.TRIGGERS_MISSING
        sync(index)
        assert (examine(index), index.ranking.count()) == (Status.HEALTHY, members)
    assert_mirrors(type(index))


def test_triggers_are_made_without_holding_up_writers(
    ranked: Callable[..., RankIndex], elsewhere: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction is open. Whoever waits for its table would make all later writers wait."""
    monkeypatch.setattr(triggers, "_PATIENCE", 0.0)
    ranked(INHERITED[:1])
    execute("INSERT INTO part VALUES (1, 5)")
    triggers.drop("default", ["watched"])
    with transaction.atomic():
        execute("UPDATE part SET score = 6")
        with pytest.raises(CaptureError, match="lock timeout"):
            elsewhere(triggers.install, "default", triggers.captured("default"))
    assert install().created


def test_a_column_that_the_owner_of_the_table_renames(ranked: Callable[..., RankIndex]) -> None:
    """Every save would fail, by a trigger that names the former one."""
    index = ranked(INHERITED[:1])
    execute("INSERT INTO part VALUES (1, 5)", "ALTER TABLE part RENAME score TO points")
    with pytest.raises(DatabaseError):
        execute("UPDATE part SET points = 6")
    assert examine(index) is Status.TRIGGERS_MISSING
    with suppress(DatabaseError):  # rows can't be read by the former name
        sync(index)
    execute("UPDATE part SET points = 7")
    assert examine(index) is Status.TRIGGERS_MISSING, "changes of the new column go unnoticed"
    execute("ALTER TABLE part RENAME points TO score")
    sync(index)
    assert examine(index) is Status.HEALTHY
    assert index.ranking.score(1) == 7
