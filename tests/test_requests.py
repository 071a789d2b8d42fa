"""Requests are values: what becomes of the replies is told without a server. Every question has an answer by SQL, and
one over shards."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest import mock

from django_zrank import requests
from django_zrank.codec.layout import PLAIN
from django_zrank.engine import executor
from django_zrank.engine.executor import Executor
from django_zrank.filters import Clause, Scope
from django_zrank.keys import Keys
from django_zrank.ranking import Ranking
from django_zrank.requests.histogram import CountScores
from django_zrank.requests.positions import BareScore
from django_zrank.requests.request import FULL, Call, Request, Several, merge
from django_zrank.requests.sampling import Draw
from django_zrank.requests.scores import ChangeScores, Touch
from django_zrank.requests.sharded import _ANSWERS as SHARDED_ANSWERS
from django_zrank.requests.sharded import sampling as sharded_sampling
from django_zrank.requests.view import View
from django_zrank.sql import reader as sql_reader
from django_zrank.sql import sampling as sql_sampling
from django_zrank.sql.reader import _ANSWERS as SQL_ANSWERS

KEYS = Keys.of("zrank", "player")


def run(request: Request[Any]) -> tuple[Any, list[list[str]]]:
    """The answer to a request where every command is replied to by its name, and what was sent in each round."""
    rounds = []
    while isinstance(request, Request):
        sent = [str(call.command) for call in request.calls]
        rounds.append(sent)
        request = request.parse(list(sent))
    return request, rounds


def ask(*commands: str, writes: bool = False, atomic: bool = False) -> Request[str]:
    return Request(tuple(Call(command, ()) for command in commands), "".join, writes, atomic)


def asking_on(first: str, *others: str) -> Request[str]:
    """A request that is answered after as many rounds as there are commands."""
    if not others:
        return ask(first)
    return Request(
        (Call(first, ()),), lambda replies: asking_on(*others).then(lambda said: replies[0] + said)
    )


def test_what_follows_is_done_to_the_answer_of_the_last_round() -> None:
    assert run(ask("A", "B").then(str.lower)) == ("ab", [["A", "B"]])
    assert run(asking_on("A", "B", "C").then(str.lower)) == ("abc", [["A"], ["B"], ["C"]])
    assert run(ask("A").then(lambda said: ask("B").then(lambda more: said + more))) == ("AB", [["A"], ["B"]])


def test_merged_requests_share_their_rounds() -> None:
    merged = merge([asking_on("A", "B"), ask("C", "D"), asking_on("E", "F", "G"), ask()])
    assert run(merged) == (["AB", "CD", "EFG", ""], [["A", "C", "D", "E"], ["B", "F"], ["G"]])
    assert run(merge([])) == ([], [[]])


def test_a_merged_request_takes_any_number_of_rounds() -> None:
    """As the intersections of shards do, which are made piece by piece."""

    def count(left: int) -> Request[Any]:
        return Request((Call("A", ()),), lambda replies: count(left - 1) if left else replies)

    answer, rounds = run(merge([count(3000), count(0), count(2999)]))
    assert answer == [["A"], ["A"], ["A"]]
    assert [len(sent) for sent in rounds] == [3, *[2] * 2999, 1]


def test_a_merged_request_writes_if_one_does() -> None:
    assert not merge([ask("A"), ask("B")]).writes
    assert merge([ask("A"), ask("B", writes=True)]).writes
    assert merge([ask("A", atomic=True), ask("B")]).atomic
    assert ask("A", writes=True, atomic=True).then(len).writes


def test_a_merged_request_waits_no_longer_than_any() -> None:
    waiting = ask("A")._replace(delay=0.5)
    assert merge([waiting.then(len), waiting._replace(delay=0.2)]).delay == 0.2
    with mock.patch.object(executor, "sleep") as slept, mock.patch.object(Executor, "guard"):
        Executor("player").send(waiting)
        Executor("player").send(ask("B"))
    slept.assert_called_once_with(0.5)


class Question:
    def __init__(self, *commands: str) -> None:
        self.commands = commands

    def request(self, view: View, keys: Keys) -> Request[str]:
        return asking_on(*self.commands)


def test_several_questions() -> None:
    several = Several([Question("A", "B"), Question("C")])
    assert run(several.request(View(PLAIN), KEYS)) == (["AB", "C"], [["A", "C"], ["B"]])


def test_those_that_cost_much_go_in_several_round_trips() -> None:
    costs = [FULL // 2, FULL // 2, 1, 2 * FULL, FULL]
    requests = [
        Request((Call(name, (), cost=cost),), lambda replies: replies[0])
        for name, cost in zip("ABCDE", costs, strict=True)
    ]
    assert run(merge(requests, at_once=3)) == (list("ABCDE"), [["A", "B"], ["C"], ["D"], ["E"]])
    assert run(merge(requests)) == (list("ABCDE"), [list("ABCDE")])


def test_those_that_go_on_come_first_and_as_few_at_once() -> None:
    requests = [asking_on(f"{name}1", f"{name}2") for name in "ABC"]
    answers, trips = run(merge(requests, at_once=2))
    assert answers == ["A1A2", "B1B2", "C1C2"]
    assert trips == [["A1", "B1"], ["A2", "B2"], ["C1"], ["C2"]]


def questions() -> set[type]:
    """The classes of all questions about an index."""
    modules = [
        import_module(f"django_zrank.requests.{one.name}") for one in pkgutil.iter_modules(requests.__path__)
    ]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return {one for one in classes if "request" in vars(one) and not getattr(one, "_is_protocol", False)}


def test_every_question_has_an_answer_by_sql() -> None:
    of_redis_alone = {CountScores, ChangeScores, Touch}
    assert questions() - of_redis_alone - {Several} == set(SQL_ANSWERS)


def test_every_question_has_an_answer_over_shards() -> None:
    for_one_shard = {BareScore, ChangeScores, Touch}  # each is about members of one shard
    assert questions() - for_one_shard == set(SHARDED_ANSWERS)


def unread(*modules: ModuleType) -> set[str]:
    """The fields of a draw that no code of ``modules`` reads."""
    nodes = [node for module in modules for node in ast.walk(ast.parse(inspect.getsource(module)))]
    return set(Draw._fields) - {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_every_parameter_of_a_draw_is_read_wherever_members_are_drawn() -> None:
    of_the_answer = {"given"}
    assert unread(sharded_sampling) == of_the_answer
    # numbers() reads the seed
    assert unread(sql_sampling, sql_reader) == of_the_answer | {"seed", "reach", "sort_key"}


def test_recommend_many_has_the_parameters_of_recommend() -> None:
    one, many = (inspect.signature(verb).parameters for verb in (Ranking.recommend, Ranking.recommend_many))
    assert one.keys() - many.keys() == {"member", "where", "seed"}
    assert many.keys() - one.keys() == {"members"}


def test_a_band_counts_from_the_first_one_over_all_round_trips() -> None:
    tested = Scope((Clause(False, "r", ("region:kantou",)), Clause(True, "g", ("live",))))
    request: Any = Draw("1", 2, [(1, 1), (2, 2), (3, 3)]).request(View(PLAIN, tested), KEYS)
    request = request.parse([[b"out of patience", b"5", 2, 1000, b"not made", 9000, 0, 1000, 500]])
    assert request.parse([[b"drawn", 9, 4, 2, 3]]).band == 2
