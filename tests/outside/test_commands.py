"""The commands: options that make no sense, what they say of one thing and of several, files that they write."""

from __future__ import annotations

import csv
import json
import os
import re
import stat
from argparse import Action
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command, get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandError
from django.db import connection
from django.db.models import F
from redis import Redis

from django_zrank.testing import disable_sync
from tests.testapp.models import Competitor, Nickname, Ticket, Video
from tests.testapp.zrank import BySpan, NicknameRank

pytestmark = [
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
    pytest.mark.usefixtures("zrank"),
]

COMMANDS = sorted(name for name, app in get_commands().items() if app == "django_zrank")

RIGHT = {"erase_zrank": ["INDEX", "404"], "export_zrank": ["INDEX"], "prune_zrank": ["nobodys"]}
"""Arguments with which a command does nothing much, where it needs some."""

NUMBERS = ["", "x", "1,5", "nan", "inf", "-inf", "-1", "0", "1e300", "1e999", "9" * 30, "0x10", "\0"]
TEXTS = [
    "",
    " ",
    "=",
    "==",
    "=1",
    "nope",
    "nope=1",
    "group=",
    "pk=1",
    "\0",
    "a\0b",
    "region=\0",
    "{}",
    "*",
    "\ud800",
]
TEXTS += ["é" * 300, "x/y/z", "/", "~", "-", "💥", "region=a=b", "region__in=a,b", "total=1", "points__gt=x"]


def own(command: str) -> list[Action]:
    """The arguments of a command that Django doesn't give to every command."""
    parser = load_command_class("django_zrank", command).create_parser("manage.py", command)
    every = {action.dest for action in BaseCommand().create_parser("manage.py", "x")._actions}
    return [action for action in parser._actions if action.dest not in every]


def run(command: str, *args: str) -> str:
    """Run a command, and return what it writes to both streams, with the text of its error."""
    out = StringIO()
    try:
        call_command(command, *args, stdout=out, stderr=out)
    except CommandError as error:
        out.write(f"{error}\n")
    return out.getvalue()


OPTIONS = [(command, action) for command in COMMANDS for action in own(command) if action.nargs != 0]


def words(command: str, action: Action, value: str, index: str) -> list[str]:
    """A command's arguments, of which one is ``value``."""
    right = [index if word == "INDEX" else word for word in RIGHT.get(command, [])]
    if action.option_strings:
        # As an argument of its own, a value may begin like an option.
        watch = ["--watch"] if command == "sync_zrank" else []
        return [*right, *watch, f"{action.option_strings[-1]}={value}"]
    at = [one.dest for one in own(command) if not one.option_strings].index(action.dest)
    return ["--", *right[:at], value, *right[at + 1 :]]


@pytest.fixture
def _some(zrank: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three members of each of two indexes."""
    for points in range(3):
        Competitor.objects.create(points=points, total=points, region="kanto")
        Nickname.objects.create(nick=f"nick-{points}", score=points)
    call_command("rebuild_zrank", "competitors", "nickname", verbosity=0)
    monkeypatch.chdir(tmp_path)


def error_of(command: str, *args: str) -> str | None:
    """The text of the error of a command; None if there is none. Anything else would be a traceback."""
    out = StringIO()
    try:
        call_command(command, *args, stdout=out, stderr=out)
    except CommandError as error:
        return str(error)
    return None


@pytest.mark.usefixtures("_some")
@pytest.mark.parametrize("index", ["competitors", "nickname"])
@pytest.mark.parametrize(
    ("command", "action"), OPTIONS, ids=[f"{command} {action.dest}" for command, action in OPTIONS]
)
def test_a_value_that_makes_no_sense_is_an_error_that_names_its_option(
    command: str, action: Action, index: str, tmp_path: Path
) -> None:
    """Never a traceback, and nothing is written. What makes sense is done."""
    names = action.option_strings or [action.dest]
    for value in NUMBERS if action.type in (int, float) else TEXTS:
        before = sorted(tmp_path.iterdir())
        error = error_of(command, *words(command, action, value, index))
        if error is None:
            makes_sense = value.isdigit() if action.type else value or action.dest == "pk"
            assert makes_sense, value
        else:
            assert any(name in error for name in names), (value, error)
            assert sorted(tmp_path.iterdir()) == before, value


# Numbers of things


NOUNS = {
    "row": "rows",
    "member": "members",
    "mark": "marks",
    "key": "keys",
    "group": "groups",
    "list": "lists",
    "ranking": "rankings",
    "applied write": "applied writes",
    "build": "builds",
}


@pytest.mark.part("erase", "export", "groups")
@pytest.mark.usefixtures("_some")
@pytest.mark.parametrize("count", [1, 2])
def test_one_thing_is_not_called_several(zrank: Redis, count: int) -> None:
    """Every command about one member, one mark, one group, one write, and about two."""
    Nickname.objects.all().delete()
    said = run("rebuild_zrank", "nickname", "--dry-run")
    for number in range(count):
        Nickname.objects.create(nick=f"one-{number}", score=number)
    said += run("rebuild_zrank", "nickname", "--dry-run") + run("rebuild_zrank", "nickname")
    with disable_sync():
        Nickname.objects.update(score=F("score") + 1)
    said += run("verify_zrank", "nickname", "--repair") + run("sync_zrank", "nickname")
    said += run("verify_zrank", "nickname") + run("export_zrank", "nickname", "--output=members.csv")
    for number in range(count):
        NicknameRank.group(f"group-{number}").add("one-0")
        Nickname.objects.create(nick=f"more-{number}", score=number)
        NicknameRank.ranking.recommend(f"more-{number}", 10, band=100, remember=timedelta(hours=1))
    with disable_sync():
        Nickname.objects.filter(nick="one-0").delete()
    said += run("erase_zrank", "nickname", "one-0")
    said += run("zrank_status", "nickname") + run("capture_zrank", "--check")
    name = connection.ops.quote_name("index")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE zrank_build SET {name} = 'nobodys' WHERE {name} = 'competitors'")
        for number in range(count):
            mark = f"INSERT INTO zrank_mark ({name}, via, member) VALUES ('nobodys', NULL, %s)"
            batch = f"INSERT INTO zrank_batch ({name}, term, version, marks) VALUES ('nobodys', 0, %s, '[]')"
            cursor.execute(mark, [str(number)])
            cursor.execute(batch, [number])
    for number in range(count):
        zrank.set(f"zrank:{{nobodys}}:remembered:{number}", "")
    said += run("prune_zrank", "nobodys", "--dry-run") + run("prune_zrank", "nobodys")
    # Numbers of seconds have a point.
    counts = re.findall(r"(?<![-\d.:])(\d+) ((?:applied )?[a-z]+)", said)
    assert {word for _, word in counts} >= {*(NOUNS if count == 1 else NOUNS.values())} - {
        "rankings",
        "builds",
    }
    assert [pair for pair in counts if pair[1] in (NOUNS.values() if pair[0] == "1" else NOUNS)] == []


# Files


def members_file(tmp_path: Path) -> Path:
    path = tmp_path / "members.csv"
    path.write_text("of yesterday")
    return path


@pytest.mark.part("export")
@pytest.mark.usefixtures("_some")
@pytest.mark.parametrize("name", ["nowhere/members.csv", ".", "", "members.csv/x", "\0", "x" * 300, "loop"])
def test_an_export_that_can_not_be_written_is_an_error_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    members_file(tmp_path)
    Path("loop").symlink_to("loop")
    before = sorted(tmp_path.iterdir())
    assert "--output" in run("export_zrank", "nickname", f"--output={name}")
    assert sorted(tmp_path.iterdir()) == before
    assert members_file(tmp_path).read_text() == "of yesterday"


@pytest.mark.part("export")
@pytest.mark.usefixtures("_some")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_device_is_an_error() -> None:
    assert "--output: No space left on device" in run("export_zrank", "nickname", "--output=/dev/full")


@pytest.mark.part("export")
@pytest.mark.usefixtures("_some")
def test_an_export_takes_the_place_of_a_file(tmp_path: Path) -> None:
    """As a whole, so that who has opened the old one can read it, and with its permissions. A link stays one, and a
    pipe is written to."""
    path, link = members_file(tmp_path), tmp_path / "link.csv"
    path.chmod(0o640)
    link.symlink_to(path)
    expected = run("export_zrank", "nickname")
    assert expected.startswith("rank,pk,score\n1,nick-2,2.0\n")
    with path.open() as old:
        assert (
            run("export_zrank", "nickname", "--output=link.csv")
            == "nickname: 3 members written to link.csv\n"
        )
        assert old.read() == "of yesterday"
    assert path.read_text() == expected
    assert link.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(tmp_path.iterdir()) == [link, path]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_text)
        run("export_zrank", "nickname", "--output=pipe")
        assert read.result(timeout=20) == expected
    assert pipe.is_fifo()


FORMULAS = [
    "=1+1",
    "+1+1",
    "-1+1",
    "@SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "=",
    # Not 1: MySQL takes them for the same key as those without the width.
    "\N{FULLWIDTH EQUALS SIGN}2",
    "\N{FULLWIDTH PLUS SIGN}2",
    "\N{FULLWIDTH HYPHEN-MINUS}2",
    "\N{FULLWIDTH COMMERCIAL AT}2",
    '="x",1',
]
TEXTS_AND_NUMBERS = ["-1", "+1", "-1.5", "1", "a=1", "'=1", " x", "", "ünï", "-", "1-1"]


@pytest.mark.part("export")
@pytest.mark.usefixtures("zrank")
def test_no_cell_of_an_export_is_a_formula() -> None:
    """Numbers stay numbers, in text too; JSON has what the database has."""
    keys = sorted(FORMULAS + TEXTS_AND_NUMBERS)
    Nickname.objects.bulk_create(Nickname(nick=key, score=-at) for at, key in enumerate(keys))
    for number in range(1, 4):
        Video.objects.create(price=Decimal(f"-{number}.50"))
        Ticket.objects.create(span=-timedelta(seconds=number))
    call_command("rebuild_zrank", verbosity=0)
    rows = [*csv.reader(StringIO(run("export_zrank", "nickname"), newline=""), strict=True)][1:]
    assert [row[1] for row in rows] == [f"'{key}" if key in {*FORMULAS, "-"} else key for key in keys]
    assert [float(row[2]) for row in rows] == [-at for at in range(len(keys))]
    lines = run("export_zrank", "nickname", "--json").splitlines()
    assert [json.loads(line)["pk"] for line in lines] == keys
    rows = [*csv.reader(StringIO(run("export_zrank", "prices")))][1:]
    assert [row[2] for row in rows] == ["-1.50", "-2.50", "-3.50"]
    rows = [*csv.reader(StringIO(run("export_zrank", BySpan.instance().name)))][1:]
    assert [row[2] for row in rows] == ["-P0DT00H00M03S", "-P0DT00H00M02S", "-P0DT00H00M01S"]
