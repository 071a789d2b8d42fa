"""The query string: what each parameter does, and that nonsense is a 400 that names it."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils.http import urlencode
from rest_framework.test import APIClient

from django_zrank.rest_framework import query
from django_zrank.rest_framework.checks import RESERVED
from django_zrank.testing import sync_now
from tests.rest_framework.urls import Bandless
from tests.testapp.models import Nickname, Player, Ticket
from tests.testapp.zrank import ByDay, BySpan, NicknameRank, PlayerRank

URL = "/api/recommendations/"


def ask(client: APIClient, query: str = "", url: str = URL) -> Any:
    response = client.get(f"{url}?{query}")
    assert response.status_code == 200, response.content
    return response.json()


def scores(answer: Any) -> set[Any]:
    return {result["score"] for result in answer["results"]}


def test_n(client: APIClient, me: Player) -> None:
    assert len(ask(client, "n=1")["results"]) == 1
    assert len(ask(client, "n=20")["results"]) == 20
    assert len(ask(client, "n=500")["results"]) == 20


def test_default_n(client: APIClient, me: Player, settings: Any) -> None:
    assert len(ask(client)["results"]) == 10
    assert len(ask(client, url="/many/")["results"]) == 18
    settings.ZRANK = {**settings.ZRANK, "MAX_N": 4}
    assert len(ask(client)["results"]) == 4


def test_an_empty_band(client: APIClient, staff: APIClient, me: Player) -> None:
    for asked, url in ((client, URL), (staff, f"/ticket-moment/?member={uuid4()}")):
        for name in ("band", "ranks", "widen"):
            response = asked.get(f"{url}{'&' if '?' in url else '?'}{name}=")
            assert response.status_code == 400
            assert list(response.json()) == [name]


def test_band(client: APIClient, me: Player) -> None:
    assert ask(client, "n=20")["band"] == [10, 10]
    answer = ask(client, "band=3&n=20")
    assert answer["band"] == [3, 3]
    assert scores(answer) == {97, 98, 99, 101, 102, 103}
    answer = ask(client, "band=2,1&n=20")
    assert answer["band"] == [2, 1]
    assert scores(answer) == {98, 99, 101}
    assert answer["candidates"] == 3


def test_band_comes_back_as_it_was_asked(client: APIClient, me: Player) -> None:
    assert client.get(URL, {"band": "3"}).content.startswith(b'{"band":[3,3],')
    assert client.get(URL, {"band": "2.5"}).content.startswith(b'{"band":[2.5,2.5],')


def test_widen(client: APIClient, me: Player) -> None:
    answer = ask(client, "band=1&widen=2&widen=3,4&widen=9&n=7")
    assert answer["band"] == [3, 4]
    assert scores(answer) == {97, 98, 99, 101, 102, 103, 104}


def test_widen_is_not_used_where_it_is_not_needed(client: APIClient, me: Player) -> None:
    assert ask(client, "band=1&widen=2&n=2")["band"] == [1, 1]


def test_exclude(client: APIClient, me: Player) -> None:
    pks = dict(Player.objects.values_list("level", "pk"))
    answer = ask(client, f"band=3&exclude={pks[97]},{pks[98]}&exclude={pks[103]}")
    assert scores(answer) == {99, 101, 102}
    answer = ask(client, f"band=3&exclude= {pks[97]}, {pks[98]}")
    assert scores(answer) == {99, 101, 102, 103}


def test_exclude_of_nobody_known(client: APIClient, me: Player) -> None:
    assert len(ask(client, f"exclude=0,-1,{10**30}")["results"]) == 10


def test_seed(client: APIClient, me: Player) -> None:
    draws = [ask(client, f"seed={seed}", "/seeded/")["results"] for seed in (7, 7, 8)]
    assert draws[0] == draws[1] != draws[2]


def test_seed_must_be_allowed(client: APIClient, me: Player) -> None:
    response = client.get(URL, {"seed": 7})
    assert response.status_code == 400
    assert response.json() == {"seed": ["No seed can be given here."]}


def test_unknown_parameters_are_refused(client: APIClient, me: Player) -> None:
    response = client.get(f"{URL}?page=2&limit=1&count=&N=3&exlude=3&n=2")
    assert response.status_code == 400
    assert response.json() == {
        "page": ["There is no such parameter."],
        "limit": ["There is no such parameter."],
        "count": ["There is no such parameter."],
        "N": ["There is no such parameter. Did you mean n?"],
        "exlude": ["There is no such parameter. Did you mean exclude?"],
    }


class TestCeilings:
    """The widest band and window of ranks that a client may ask for."""

    def test_ten_bands_of_the_index(self, client: APIClient, me: Player) -> None:
        assert ask(client, "band=50,100")["band"] == [50, 100]  # As the README shows it, with a band of 10
        assert ask(client, "band=101,1000000")["band"] == [100, 100]
        assert ask(client, "band=1e99")["band"] == [100, 100]
        assert ask(client, "band=1&widen=5000&n=500")["band"] == [100, 100]

    def test_of_the_view(self, client: APIClient, me: Player) -> None:
        assert ask(client, "band=100", "/ceilings/")["band"] == [2, 4]
        assert ask(client, "band=1,100", "/ceilings/")["band"] == [1, 4]
        assert ask(client, "band=1&widen=2,3&widen=9&n=500", "/ceilings/")["band"] == [2, 4]

    def test_the_band_of_the_index_is_not_cut(self, client: APIClient, me: Player) -> None:
        assert ask(client, "", "/ceilings/")["band"] == [10, 10]

    def test_none(self, client: APIClient, me: Player) -> None:
        assert ask(client, "band=5000", "/unbounded/")["band"] == [5000, 5000]
        assert ask(client, "ranks=5000", "/unbounded/")["band"] == [5000, 5000]
        sync_now(Bandless)
        assert ask(client, "band=5000", "/bandless/")["band"] == [5000, 5000]

    def test_in_time(self, staff: APIClient, zrank: Any) -> None:
        ticket = Ticket.objects.create(day=date(2026, 1, 1))
        sync_now(ByDay)
        for asked, band in (("P69D", "69 00:00:00"), ("P71D", "70 00:00:00"), ("71", "70 00:00:00")):
            assert ask(staff, f"member={ticket.pk}&band={asked}", "/ticket-day/")["band"] == [band, band]

    def test_of_another_type(self, client: APIClient, me: Player) -> None:
        with pytest.raises(ImproperlyConfigured, match="max_band"):
            client.get("/wrong-ceiling/")

    def test_no_band_at_all(self, client: APIClient, me: Player) -> None:
        for name in ("band", "ranks", "widen"):
            response = client.get("/no-band/", {name: 5})
            assert response.status_code == 400
            assert response.json() == {name: ["No band can be given here."]}
        assert ask(client, "", "/no-band/")["band"] == [10, 10]


NONSENSE = [
    ("n", ["0"]),
    ("n", ["-1"]),
    ("n", ["abc"]),
    ("n", ["1.5"]),
    ("n", ["501"]),
    ("n", [""]),
    ("n", ["9" * 5000]),
    ("n", ["nan"]),
    ("n", ["1e1"]),
    ("n", ["5", "6"]),
    ("n", ["\0"]),
    ("n", [" 5"]),
    ("n", ["+5"]),
    ("n", ["5.0"]),
    ("n", ["1_0"]),
    ("n", ["٣"]),
    ("band", ["nan"]),
    ("band", ["snan"]),
    ("band", ["inf"]),
    ("band", ["-inf"]),
    ("band", ["-1"]),
    ("band", ["1,-1"]),
    ("band", ["1,nan"]),
    ("band", ["1,2,3"]),
    ("band", [","]),
    ("band", ["1,"]),
    ("band", [",1"]),
    ("band", [""]),
    ("band", ["abc"]),
    ("band", ["P1D"]),
    ("band", ["1e400"]),
    ("band", ["1e999999"]),
    ("band", ["1e999999999999"]),
    ("band", ["9" * 5000]),
    ("band", ["\0"]),
    ("band", [" 5"]),
    ("band", ["1_0"]),
    ("band", ["٣"]),
    ("band", ["10", "20"]),
    ("widen", [""]),
    ("widen", ["-1"]),
    ("widen", ["25", "nan"]),
    ("widen", ["25", "1,2,3"]),
    ("widen", ["1e400"]),
    ("widen", ["1e999999"]),
    ("widen", ["25"] * 11),
    ("exclude", [""]),
    ("exclude", ["abc"]),
    ("exclude", ["1,abc"]),
    ("exclude", ["1,,2"]),
    ("exclude", ["1,"]),
    ("exclude", ["1", ""]),
    ("exclude", ["1.5"]),
    ("exclude", ["9" * 5000]),
    ("exclude", ["\0"]),
    ("exclude", [",".join(map(str, range(1001)))]),
    ("member", [""]),
    ("member", ["abc"]),
    ("member", ["1,2"]),
    ("member", ["1", "1"]),
    ("member", ["\0"]),
]


NONSENSE_WHERE_ALLOWED = [
    *(("seed", [value]) for value in ("", "abc", "1.5", "nan")),
    ("seed", ["1", "2"]),
    *(("near", [value]) for value in ("", "abc", "1.5", "nan", "9" * 30, str(2**53 + 1), " 7", "1_000", "٣")),
]


@pytest.mark.parametrize(("url", "nonsense"), [(URL, NONSENSE), ("/seeded/", NONSENSE_WHERE_ALLOWED)])
def test_nonsense(client: APIClient, me: Player, url: str, nonsense: list[tuple[str, list[str]]]) -> None:
    for name, values in nonsense:
        response = client.get(url, {name: values})
        assert response.status_code == 400, (name, values)
        assert list(response.json()) == [name]
        messages = response.json()[name]
        assert isinstance(messages, list)
        assert all(isinstance(message, str) and message for message in messages)


def test_near_a_score(client: APIClient, me: Player) -> None:
    players = Player.objects.bulk_create(Player(level=1000 + number) for number in range(9))
    sync_now(PlayerRank)
    found = client.get("/seeded/", {"near": "1004", "band": "2", "n": "9"}).json()
    assert [result["pk"] for result in found["results"]] == [player.pk for player in players[6:1:-1]]
    assert found["band"] == [2, 2]
    assert client.get(URL, {"near": "1004"}).json() == {"near": ["No score can be given here."]}


def test_everything_wrong_is_said_at_once(client: APIClient, me: Player) -> None:
    response = client.get(URL, {"n": "0", "band": "x", "widen": ["1", "y"], "exclude": "z", "seed": "1"})
    assert response.status_code == 400
    assert sorted(response.json()) == ["band", "exclude", "n", "seed", "widen"]
    assert response.json()["n"] == ["Ensure this value is greater than or equal to 1."]
    assert response.json()["band"] == ["“x” is not a band: 'x' is not a number."]
    assert response.json()["exclude"] == ["“z” is not an id."]


def test_ceilings_are_named(client: APIClient, me: Player, settings: Any) -> None:
    settings.ZRANK = {**settings.ZRANK, "MAX_N": 50}
    assert client.get(URL, {"n": 51}).json() == {"n": ["Ensure this value is less than or equal to 50."]}
    assert client.get("/many/", {"exclude": "1,2,3"}).status_code == 200
    assert client.get("/many/", {"exclude": ["1,2,3", "4"]}).json() == {
        "exclude": ["At most 3 ids can be given, not 4."]
    }


def test_band_is_required_where_the_index_has_none(client: APIClient, me: Player) -> None:
    sync_now(Bandless)
    assert client.get("/bandless/").json() == {"band": ["This field is required."]}
    assert ask(client, "band=4", "/bandless/")["candidates"] == 8
    assert ask(client, "ranks=3", "/bandless/")["candidates"] == 6


def test_text_keys(staff: APIClient, zrank: Any) -> None:
    for score, nick in enumerate(["a/b c", "émile", "<b>", "007"]):
        Nickname.objects.create(nick=nick, score=score / 2)
    sync_now(NicknameRank)
    answer = ask(staff, urlencode({"member": "émile", "exclude": "007"}), "/nickname/")
    assert {result["pk"]: result["score"] for result in answer["results"]} == {"a/b c": 0.0, "<b>": 1.0}
    assert answer["band"] == [1.5, 1.5]
    for name in ("member", "exclude"):
        for nonsense in ("", "a\0b"):
            assert staff.get("/nickname/", {"member": "007", name: nonsense}).json().keys() == {name}
    assert staff.get("/nickname/", {"member": "007", "exclude": "a,,b"}).status_code == 400
    assert staff.get("/nickname/", {"member": "nobody"}).status_code == 404


def test_uuid_keys_and_spans(staff: APIClient, zrank: Any) -> None:
    tickets = [Ticket.objects.create(span=timedelta(minutes=minute)) for minute in range(10)]
    sync_now(BySpan)
    answer = ask(staff, f"member={tickets[5].pk}&band=PT2M,00:01:00&exclude={tickets[4].pk}", "/ticket-span/")
    assert [(result["pk"], result["score"]) for result in answer["results"]] == [
        (str(tickets[3].pk), "180.0"),
        (str(tickets[6].pk), "360.0"),
    ]
    assert answer["band"] == ["00:02:00", "00:01:00"]
    for name, value in {"band": "soon", "exclude": "5", "member": "x" * 36, "widen": "-P1D"}.items():
        response = staff.get("/ticket-span/", {"member": tickets[5].pk, name: value})
        assert response.status_code == 400
        assert list(response.json()) == [name]


def test_a_band_that_came_back_can_be_asked_again(staff: APIClient, zrank: Any) -> None:
    tickets = [
        Ticket.objects.create(day=date(2026, 1, 1 + day), span=timedelta(hours=day)) for day in range(20)
    ]
    sync_now(ByDay, BySpan)
    for url in ("/ticket-day/", "/ticket-span/"):
        answer = ask(staff, f"member={tickets[9].pk}&band=P2D,1 00:00:00", url)
        band = ",".join(map(str, answer["band"]))
        assert ask(staff, urlencode({"member": tickets[9].pk, "band": band}), url)["band"] == answer["band"]


def test_no_filter_is_called_like_a_parameter() -> None:
    """By default: ``RESERVED`` is what ``get_filters()`` avoids."""
    queries = [
        one
        for one in vars(query).values()
        if isinstance(one, type) and issubclass(one, query.QuerySerializer)
    ]
    context: Any = {
        "index": PlayerRank.instance(),
        "max_n": 500,
        "filters": (),
        "others": frozenset(),
        "pages": (),
    }
    allowed: Any = {
        "allow_band": True,
        "allow_seed": True,
        "allow_near": True,
        "allow_groups": False,
        "allow_unknown": False,
    }
    bounds: Any = {"shows_rank": True, "max_excluded": 1000, "max_band": None, "max_ranks": None}
    own = {name for one in queries for name in one.of(**context, **allowed, **bounds).fields}
    assert {"n", "facet", "seed", "band"} <= own <= RESERVED
