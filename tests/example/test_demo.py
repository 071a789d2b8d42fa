"""``manage.py demo``."""

from __future__ import annotations

import json
import shutil
import socket

import pytest

pytestmark = pytest.mark.slow

PLAYERS = 20_000


@pytest.fixture(scope="module")
def first(new_arena):
    """An arena in which the demo ran once, and what it showed."""
    arena = new_arena()
    return arena, run_json(arena, "--players", PLAYERS)


def run_json(arena, *words):
    done = arena.manage("demo", "--no-serve", "--json", *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def prepared(shown):
    return shown["players"], shown["created"], shown["deleted"], shown["rebuilt"]


def test_first_run_and_second(first):
    arena, shown = first
    assert prepared(shown) == (PLAYERS, PLAYERS, 0, True)
    check_scenes(shown["scenes"])
    assert [scene["player"]["rank"] for scene in shown["scenes"]] == [PLAYERS, PLAYERS // 2, 1]
    check_change(shown["change"])
    # Nothing is left running.
    assert not (arena.var / "valkey" / "running").exists()
    assert not arena.valkey_answers()

    # What the first run changed last is what the second one finds, in the database and in Valkey.
    second = run_json(arena, "--players", PLAYERS)
    assert prepared(second) == (PLAYERS, 0, 0, False)
    check_scenes(second["scenes"])
    assert arena.levels()[shown["change"]["pk"]] == shown["change"]["level"][1]
    check_ranks(arena, second["scenes"][:1])  # Drawn before the second run's own change


def check_scenes(scenes):
    assert [scene["role"] for scene in scenes] == ["lowest", "middle", "highest"]
    lowest, middle, highest = (scene["player"] for scene in scenes)
    assert lowest["level"] < middle["level"] < highest["level"]
    assert lowest["rank"] > middle["rank"] > highest["rank"] >= 1
    for scene in scenes:
        me, opponents = scene["player"], scene["opponents"]
        assert len(opponents) == 10
        assert len({line["pk"] for line in opponents} | {me["pk"]}) == 11
        assert [line["rank"] for line in opponents] == sorted(line["rank"] for line in opponents)
        below, above = scene["band"]
        assert all(me["level"] - below <= line["level"] <= me["level"] + above for line in opponents)


def check_change(change):
    (level, new_level), (rank, new_rank) = change["level"], change["rank"]
    assert new_level > level
    assert new_rank < rank


def check_ranks(arena, scenes):
    """The ranks shown fit the levels in the database."""
    everybody = arena.levels().values()
    for line in (line for scene in scenes for line in (scene["player"], *scene["opponents"])):
        higher = sum(level > line["level"] for level in everybody)
        at_least = sum(level >= line["level"] for level in everybody)
        assert higher < line["rank"] <= at_least


def test_levels_follow_the_distribution(first):
    arena, _ = first
    shares = [
        100 * sum(low <= level <= high for level in arena.levels().values()) / PLAYERS
        for low, high in ((1, 10), (11, 20), (21, 30), (31, 3500))
    ]
    assert shares == pytest.approx([22.1, 15.8, 8.0, 54.1], abs=1.2)


def test_friends_are_not_offered(first):
    arena, shown = first
    friends = arena.query("SELECT from_player_id, to_player_id FROM players_player_friends")
    for scene in shown["scenes"]:
        mine = {other for one, other in friends if one == scene["player"]["pk"]}
        assert mine
        assert mine.isdisjoint(line["pk"] for line in scene["opponents"])


def test_another_population_is_matched_and_another_server(arena):
    run_json(arena, "--players", 300)
    kept = set(arena.levels())
    more = run_json(arena, "--players", 450)
    assert prepared(more) == (450, 150, 0, True)
    assert kept < set(arena.levels())
    less = run_json(arena, "--players", 300)
    assert prepared(less) == (300, 0, 150, True)
    assert set(arena.levels()) == kept

    # An index that is lost is built again.
    shutil.rmtree(arena.var / "valkey")
    again = run_json(arena, "--players", 300)
    assert prepared(again) == (300, 0, 0, True)
    check_scenes(again["scenes"])


def test_tables_for_a_person(arena):
    done = arena.manage("demo", "--no-serve", "--players", 300)
    assert done.returncode == 0, done.stderr
    for words in (
        "300 players created",
        "The lowest level",
        "The middle level",
        "The highest level",
        " you  ",
    ):
        assert words in done.stdout
    assert "from level" in done.stdout.splitlines()[-1]
    # No terminal, no bar.
    assert done.stderr == ""


def test_a_port_in_use_gives_way(arena):
    """Somebody else on Valkey's port: another one is taken. On the site's port: said before any work."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", int(arena.environment["ARENA_VALKEY_PORT"])))
        other.listen()
        other.settimeout(0)
        assert run_json(arena, "--players", 300)["rebuilt"]

        done = arena.manage("demo", "--players", 300, "--port", arena.environment["ARENA_VALKEY_PORT"])
        assert done.returncode == 1
        assert "--port" in done.stderr
        assert done.stdout == ""


def test_too_few_players(arena):
    done = arena.manage("demo", "--players", 2, "--no-serve")
    assert done.returncode == 1
    assert "--players" in done.stderr


def test_the_declarations_pass_the_checks(arena):
    done = arena.manage("check")
    assert done.returncode == 0, done.stderr
    done = arena.manage("makemigrations", "--check", "--dry-run")
    assert done.returncode == 0, done.stdout
