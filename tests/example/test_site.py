"""The page and the API, as a browser and a program ask for them."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar

import pytest

from tests.servers import wait_for


class Client:
    """A browser without a screen: it keeps cookies and sends the token of the page's forms."""

    def __init__(self, site):
        self.site = site
        self.cookies = CookieJar()
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(self.cookies))

    def get(self, path):
        return self._open(urllib.request.Request(self.site.url + path))

    def post(self, path, *, token=True, **form):
        form |= {"csrfmiddlewaretoken": self._token()} if token else {}
        return self._open(urllib.request.Request(self.site.url + path, urllib.parse.urlencode(form).encode()))

    def json(self, path):
        status, _, body = self.get(path)
        return status, json.loads(body)

    def _token(self):
        if not any(cookie.name == "csrftoken" for cookie in self.cookies):
            self.get("/")
        return next(cookie.value for cookie in self.cookies if cookie.name == "csrftoken")

    def _open(self, request):
        try:
            with self.opener.open(request, timeout=20) as answer:
                return answer.status, answer.headers, answer.read().decode()
        except urllib.error.HTTPError as answer:
            with answer:
                return answer.status, answer.headers, answer.read().decode()


@pytest.fixture
def client(site):
    return Client(site)


def shown(body):
    """Level, rank and opponents on the page."""
    level, rank = (int(re.search(rf'data-{name}="(\d+)"', body)[1]) for name in ("level", "rank"))
    return level, rank, [int(pk) for pk in re.findall(r'data-opponent="(\d+)"', body)]


def test_nobody_has_signed_in(client):
    status, _, body = client.get("/")
    assert status == 200
    assert "Play as" in body
    # The newcomer's opponents, whom nobody can play yet.
    assert "Viewing as" in body
    assert len(shown(body)[2]) == 10
    assert "data-play" not in body
    status, _, body = client.get("/api/recommendations/?format=api")
    assert status == 403
    assert "The API answers signed-in users" in body
    assert client.get("/api/opponents/")[0] == 403


def test_play_draw_again_and_level_up(client):
    status, _, body = client.post("/play-as/middle/")
    assert status == 200
    level, rank, opponents = shown(body)
    assert len(set(opponents)) == 10
    assert any(shown(client.get("/")[2])[2] != opponents for _ in range(5))

    status, _, body = client.post("/level-up/")
    new_level, new_rank, _ = shown(body)
    assert new_level == level + 1
    assert new_rank <= rank
    assert f"from level {level:,} to {new_level:,}" in body

    status, _, body = client.post("/leave/")
    assert status == 200
    assert "Viewing as" in body


def test_what_can_be_asked_of_a_roll(client):
    client.post("/play-as/middle/")
    level, _, opponents = shown(client.get("/?seed=x&band=30")[2])
    assert shown(client.get("/?seed=x&band=30")[2])[2] == opponents
    first, second = opponents[:2]
    again = shown(client.get(f"/?seed=x&band=30&exclude={first}&exclude={second}")[2])[2]
    assert {first, second}.isdisjoint(again)
    regions = re.findall(r'<td class="region">(\w+)</td>', client.get("/?region=kanto&band=100")[2])
    assert set(regions[:5] + regions[6:]) == {"Kanto"}  # my own row is in the middle
    levels = re.findall(r'<td class="number">([\d,]+)</td>\s*<td class="region">', client.get("/?band=30")[2])
    assert all(abs(int(one.replace(",", "")) - level) <= 30 for one in levels)
    for wrong in ("band=x", "band=-1", "region=mars", "exclude=x", "exclude=-1", "seed=" + "s" * 99):
        assert len(shown(client.get(f"/?{wrong}")[2])[2]) == 10


def test_a_match_moves_both(client, site):
    client.post("/play-as/middle/")
    _, _, (opponent, *_) = shown(client.get("/")[2])
    before = site.arena.levels()
    status, _, body = client.post(f"/match/{opponent}/")
    assert status == 200
    changed = {pk: level - before[pk] for pk, level in site.arena.levels().items() if level != before[pk]}
    assert sorted(changed.values()) == [-1, 3]
    assert opponent in changed
    assert ("You beat" in body) is (changed[opponent] == -1)
    assert client.get(f"/match/{opponent}/")[0] == 405
    assert client.post(f"/match/{opponent}/", token=False)[0] == 403
    assert client.post("/match/999999/")[0] == 404


def test_an_audience(client):
    client.post("/play-as/middle/")
    assert 'data-audience="0"' in client.get("/")[2]
    status, _, body = client.post("/audience/", action="join")
    assert status == 200
    assert "200 players joined" in body
    assert 'data-audience="200"' in body
    status, _, body = client.get("/?audience=on&band=5000")
    assert len(shown(body)[2]) == 10
    assert re.search(
        r"Drawn from (199|200|the) players in the audience within 5,000 levels, friends excluded", body
    )
    status, _, body = client.get("/?audience=on&band=5000&region=kanto")
    assert "from Kanto in the audience within 5,000 levels" in body
    assert "data-sql-draw" not in client.get("/comparison/?audience=on")[2]
    client.post("/audience/", action="leave")
    assert 'data-audience="100"' in client.get("/")[2]
    assert client.post("/audience/", action="sing")[0] == 404


def test_pages_of_the_leaderboard(client):
    _, _, body = client.get("/leaderboard/")
    assert 'rel="next"' in body
    assert 'rel="prev"' not in body
    assert "Page 1 of 100" in body
    assert len(set(re.findall(r'data-player="(\d+)"', body))) == 20
    last = -(-2000 // 20)
    _, _, body = client.get(f"/leaderboard/?page={last}")
    assert 'rel="next"' not in body
    assert 'rel="prev"' in body
    assert "Page 100 of 100" in body
    assert client.get(f"/leaderboard/?page={last + 1}")[0] == 404
    assert client.get("/leaderboard/?page=0")[0] == 404


def test_the_admin_is_open_to_the_demo(client):
    assert "password <code>admin</code>" in client.get("/admin/login/")[2]
    status, _, body = client.post(
        "/admin/login/?next=/admin/zrank/ranking/", username="admin", password="admin"
    )
    assert status == 200
    assert "players.Player" in body
    assert "password <code>admin</code>" in client.get("/")[2]


def test_posts_need_the_token(client):
    assert client.post("/play-as/middle/", token=False)[0] == 403
    client.post("/play-as/middle/")
    assert client.post("/level-up/", token=False)[0] == 403
    assert client.get("/level-up/")[0] == 405


def test_only_the_three_can_be_played(client):
    assert client.post("/play-as/admin/")[0] == 404


def test_rolls_of_one_side_and_of_none(client):
    """What is said of a roll is true at the top, and of an empty one."""
    client.post("/play-as/highest/")
    body = client.get("/")[2]
    assert "half below" not in body
    assert "friends excluded. 10 rank below you, none above." in body
    client.post("/audience/", action="leave")
    body = client.get("/?band=0&region=kanto&audience=on")[2]
    assert shown(body)[2] == []
    assert "There are no opponents at the same level who pass the filters." in body
    assert "Drawn from" not in body


def test_the_root_of_the_api(client):
    status, root = client.json("/api/?format=json")
    assert status == 200
    client.post("/play-as/middle/")
    for url in root.values():
        assert client.get(url.removeprefix(client.site.url))[0] == 200


def test_a_roll_and_its_comparison(client):
    """SQL is timed when the comparison is asked for, not by the roll."""
    body = client.get("/")[2]
    assert "data-sql" not in body
    assert "/comparison/" in body
    status, _, body = client.get("/comparison/?band=30&region=kanto")
    assert status == 200
    times = dict(re.findall(r'data-(\w+-\w+)="([\d.]+)"', body))
    assert set(times) == {"redis-draw", "sql-draw", "redis-rank", "sql-rank"}
    assert all(float(time) > 0 for time in times.values())


def test_the_api(client, site):
    client.post("/play-as/lowest/")
    page_level, page_rank, _ = shown(client.get("/")[2])

    status, answer = client.json("/api/recommendations/?n=5&format=json")
    assert status == 200
    assert len(answer["results"]) == 5
    assert set(answer["results"][0]) == {"pk", "score", "rank"}
    assert all(abs(entry["score"] - page_level) <= 10 for entry in answer["results"])

    status, answer = client.json("/api/opponents/?format=json")
    assert status == 200
    assert len(answer["results"]) == 10
    assert set(answer["results"][0]) == {"pk", "score", "rank", "name", "level", "region"}
    assert all(entry["level"] == entry["score"] for entry in answer["results"])
    assert page_rank not in {entry["rank"] for entry in answer["results"]}

    status, answer = client.json("/api/recommendations/?n=none&format=json")
    assert status == 400
    assert "n" in answer
    assert client.get("/api/atp/recommendations/?format=json")[0] == 404  # Nobody here plays tennis.
    assert client.get("/api/recommendations/")[0] == 200  # The browsable one.


def test_a_match_server_reports_what_a_player_has_gained(client, site):
    # As drf_create_token makes them.
    site.arena.query(
        "INSERT INTO authtoken_token (key, user_id, created) SELECT hex(randomblob(20)), id, CURRENT_TIMESTAMP"
        " FROM auth_user WHERE username IN ('admin', 'middle')"
    )
    token, other = (
        site.arena.query(
            f"SELECT key FROM authtoken_token JOIN auth_user u ON u.id = user_id WHERE username = '{name}'"
        )[0][0]
        for name in ("admin", "middle")
    )
    pk, level = min(site.arena.levels().items())

    def report(body, *, pk=pk, **headers):
        headers = {"Content-Type": "application/json", "Authorization": f"Token {token}", **headers}
        url = f"{site.url}/api/player/scores/{pk}/"
        status, _, body = client._open(urllib.request.Request(url, body.encode(), headers))
        return status, json.loads(body)

    once = {"Idempotency-Key": "match-17:4"}
    assert report('{"by": 3}', **once) == (200, {"pk": pk, "score": level + 3})
    assert report('{"by": 3}', **once) == (200, {"pk": pk, "score": level + 3})
    assert report('{"by": 4}', **once)[0] == 422
    assert report("{}") == (200, {"pk": pk, "score": level + 4})
    assert report('{"by": 1.5}') == (400, {"by": ["A valid integer is required."]})
    assert report(f'{{"by": -{level + 5}}}')[0] == 400
    assert report("{}", pk=10**6)[0] == 404
    assert report("{}", **{"Content-Type": "text/plain"})[0] == 415
    assert report("{}", Authorization="Token nobody's")[0] == 401
    # Its user is no staff.
    assert report("{}", Authorization=f"Token {other}")[0] == 403

    synced = site.arena.manage("sync_zrank", "player")
    assert synced.returncode == 0, synced.stderr
    assert site.arena.levels()[pk] == level + 4


def test_assets_and_admin_are_there(client):
    _, _, body = client.get("/")
    for path in re.findall(r'(?:href|src)="(/static/[^"]+)"', body):
        assert client.get(path)[0] == 200
    assert not re.search(r'(?:href|src)="(?:https?:)?//', body)
    assert client.get("/admin/login/")[0] == 200


@pytest.mark.slow
def test_an_outage(serve):
    """Killed in front of the reader: saves go on, marks pile up, and the mirror is right again."""
    with serve() as site:
        client = Client(site)
        client.post("/play-as/middle/")
        port = site.valkey_port
        before = sum(site.arena.levels().values())
        client.post("/outage/", action="kill")
        assert not site.arena.valkey_answers(port)
        status, headers, body = client.get("/")
        assert status == 503
        assert int(headers["Retry-After"]) > 0
        assert "The ranking is unavailable" in body
        assert client.get("/leaderboard/")[0] == 503
        assert client.get("/api/recommendations/?format=json")[0] == 503
        assert "from level" in client.post("/level-up/")[2]

        status, _, body = client.post("/outage/", action="save")
        assert status == 503
        assert "100 saves in" in body
        assert 'data-marks="101"' in body
        assert sum(site.arena.levels().values()) == before + 101
        status, _, body = client.post("/outage/", action="start")
        assert status in (200, 503)  # it answers before the index is repaired
        assert "Redis was started" in body
        wait_for(lambda: 'data-recovery="ended"' in client.get("/")[2], 60)
        body = client.get("/")[2]
        assert "Verified: 2,000 rows, 2,000 members, no difference." in body
        assert 'data-marks="0"' in body
        assert site.arena.valkey_answers(port)
        assert client.post("/outage/", action="kill", token=False)[0] == 403
        # Killed, the demo still ends as it should.
        client.post("/outage/", action="kill")


@pytest.mark.slow
def test_no_play_as_without_debug(serve):
    with serve(ARENA_DEBUG="0") as site:
        # The superuser whose password is known, left by a run with DEBUG.
        with_debug = "from django.conf import settings; settings.DEBUG = True"
        make = "from players.accounts import make_admin; make_admin()"
        made = site.arena.manage("shell", "-c", f"{with_debug}; {make}")
        assert made.returncode == 0, made.stderr
        assert site.arena.query("SELECT username FROM auth_user WHERE is_superuser") == [("admin",)]
        client = Client(site)
        status, _, body = client.get("/")
        assert status == 200
        assert "Play as" not in body
        assert "admin" not in re.sub('href="[^"]*"', "", body)
        assert client.post("/outage/", action="kill")[0] == 404
        assert 'id="join"' not in body
        assert client.post("/audience/", action="join")[0] == 403
        assert "password <code>" not in client.get("/admin/login/")[2]
        assert (
            "Please enter the correct" in client.post("/admin/login/", username="admin", password="admin")[2]
        )


@pytest.mark.slow
def test_killed_with_its_server_left_behind(serve):
    """The next run ends the server that nobody owns, and goes on from what it had saved."""
    with serve() as site:
        site.process.kill()
        site.process.wait()
        port = site.valkey_port
        assert site.arena.valkey_answers(port)
        after = site.arena.manage("demo", "--no-serve", "--json", "--players", 2000)
        assert after.returncode == 0, after.stderr
        assert json.loads(after.stdout)["rebuilt"] is False
        assert not site.arena.valkey_answers(port)


@pytest.mark.slow
def test_it_ends_when_it_is_told_to(serve):
    with serve() as site:
        port = site.valkey_port
        again = site.arena.manage("demo", "--no-serve", "--json", "--players", 2000)
        assert again.returncode == 0, again.stderr
        assert json.loads(again.stdout)["rebuilt"] is False
        assert site.arena.valkey_answers(port)
        assert site.valkey_port == port  # The second run used the first one's server, and left it alone.

        site.stop()
        assert not (site.arena.var / "valkey" / "running").exists()
        assert not site.arena.valkey_answers(port)
        assert (site.arena.var / "out").read_text().count("\n") <= 1
        json.loads((site.arena.var / "out").read_text())
