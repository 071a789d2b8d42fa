"""``manage.py load_atp``, on tables made up here and on the real ones where they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "atp"

PLAYERS = """\
player_id,name_first,name_last,hand,dob,ioc,height
1,Ada,Alder,R,20000101,AAA,180
2,Ben,Birch,L,20000102,AAA,181
3,Cem,Cedar,R,19991231,BBB,
4,Dee,Damson,U,,,
"""

# First week: 2 and 3 tie; by their keys 3 would be first, by their age 2 is.
# Second week: 1 and 2 change places, 3 has gone, 4 has come and ties with a second player of the same id.
TABLES = """\
ranking_date,rank,player,points
20240101,1,1,500
20240101,2,2,400
20240101,3,3,400
20240108,1,2,500
20240108,2,1,450
20240108,3,4,7
20240108,3,4,7
"""


RANKINGS = ("in the world", "inside countries", "younger first", "younger first inside countries")

# The index of points is spoiled in one country alone; then a date of birth changes, which nobody has pushed yet.
SPOIL = """
from django.core.management import call_command
from arena.server import running_server
from tennis.models import TennisPlayer
from tennis.windows import QUESTIONS, compare_with_database
from tennis.zrank import AtpRank

def report():
    for name, question in QUESTIONS.items():
        agreeing, wrong = compare_with_database(question)
        print(name, agreeing, *wrong, sep="; ")

with running_server():
    call_command("rebuild_zrank", "atp", "atp-age", no_progress=True)
    points = AtpRank.ranking.store
    ben = TennisPlayer.objects.get(atp_id=2)
    points.client.zrem(points.learn().ranking("country:AAA"), ben.pk)
    report()
    call_command("rebuild_zrank", "atp", no_progress=True)
    TennisPlayer.objects.filter(atp_id=4, namesake=0).update(born="2000-01-01")
    report()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "players.csv").write_text(PLAYERS)
    (tmp_path / "rankings.csv").write_text(TABLES)
    return tmp_path


def test_weeks_agree(arena, folder):
    done = arena.manage("load_atp", folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "id 4 has 2 lines" in done.stdout
    assert [line.split() for line in done.stdout.splitlines() if line.startswith("2024")] == [
        ["2024-01-01", "3", "players", "3", "changed", "3", "agree"],
        ["2024-01-08", "4", "players", "5", "changed", "4", "agree"],
    ]
    assert "2 weeks, 8 saves, 7 of 7 ranks agree" in done.stdout
    for ranking in RANKINGS:
        assert f"  7 of 7 agree {ranking}\n" in done.stdout

    # Once more, from where the last week left it.
    again = arena.manage("load_atp", folder)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "7 of 7 ranks agree" in again.stdout


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("20240101,1,1,500", "20240101,2,1,500"),  # too low
        ("20240108,3,4,7\n20240108,3", "20240108,3,4,7\n20240108,5"),  # beyond the tie
    ],
)
def test_a_published_rank_that_is_wrong(arena, folder, right, wrong):
    assert right in TABLES
    (folder / "rankings.csv").write_text(TABLES.replace(right, wrong))
    done = arena.manage("load_atp", folder)
    assert done.returncode == 1
    assert "6 of 7 ranks agree" in done.stdout
    assert "right is" in done.stdout
    assert "1 disagreements" in done.stderr


def test_an_index_that_is_wrong(arena, folder):
    """Nothing is pushed: the index stays empty, and the command must see it."""
    arena.environment["ARENA_AUTO_SYNC"] = "0"
    done = arena.manage("load_atp", folder)
    assert done.returncode == 1
    assert "0 of 7 ranks agree" in done.stdout
    assert "holds 0 members" in done.stdout
    for ranking in RANKINGS:
        assert f"  0 of 7 agree {ranking}\n" in done.stdout
        assert f"  {ranking}: player 1: rank None in the index, 1 in the database\n" in done.stdout


def test_one_ranking_that_is_wrong(arena, folder):
    assert arena.manage("load_atp", folder).returncode == 0
    done = arena.manage("shell", "-v", "0", "-c", SPOIL)
    assert done.returncode == 0, done.stderr
    reports = [line.split("; ") for line in done.stdout.splitlines() if line.startswith(RANKINGS)]
    sizes = "the sizes of countries differ: 'AAA'"
    ben_is_gone = "player 2: rank None in the index, 1 in the database"
    assert reports == [
        ["in the world", "4", sizes],
        ["inside countries", "2", "player 1: rank 1 in the index, 2 in the database", ben_is_gone, sizes],
        ["younger first", "4"],
        ["younger first inside countries", "4"],
        ["in the world", "4"],
        ["inside countries", "4"],
        ["younger first", "3", "player 5: rank 3 in the index, 4 in the database"],
        ["younger first inside countries", "3", "player 5: rank 1 in the index, 2 in the database"],
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rankings.csv", "ranking_date,rank,player,points\n20240101,first,1,5\n", "rankings.csv, line 2"),
        ("players.csv", "player_id,name\n1,Ada\n", "players.csv, line 2"),
        ("rankings.csv", None, "rankings.csv"),
    ],
)
def test_files_that_cannot_be_read(arena, folder, name, text, said):
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    done = arena.manage("load_atp", folder)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not REAL.is_dir(), reason="the ATP tables are not here")
def test_the_real_tables_agree(arena):
    done = arena.manage("load_atp", REAL, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    weeks = [line for line in done.stdout.splitlines() if re.match(r"\d{4}-\d\d-\d\d ", line)]
    assert len(weeks) == 20
    for line in weeks:
        _, players, _, changed, _, agreeing, _ = line.split()
        assert players == agreeing
        assert changed != "0"
    for ranking in RANKINGS:
        assert re.search(rf"^  ([\d,]+) of \1 agree {ranking}$", done.stdout, re.MULTILINE)
