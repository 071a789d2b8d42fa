"""Queries are generators of requests: what becomes of the replies is told without a server.

Every question has an answer by SQL, and one over shards."""

from __future__ import annotations

import ast
import inspect
import pkgutil
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import pytest

from django_zrank import queries as requests
from django_zrank.codec.layout import PLAIN
from django_zrank.queries import draws
from django_zrank.queries.draws import Draw
from django_zrank.queries.positions import ScoreByCommand
from django_zrank.queries.request import Blocking, Call, Request
from django_zrank.queries.steps import FULL, Several, Steps, one, together
from django_zrank.queries.view import View
from django_zrank.ranking import Ranking
from django_zrank.redis.keys import Keys

KEYS = Keys.of("zrank", "player")


def run(steps: Steps[Any]) -> tuple[Any, list[list[str]]]:
    """The answer to a query where every command is replied to by its name, and what was sent in each round."""
    rounds: list[list[str]] = []
    replies: Any = None
    while True:
        try:
            request = steps.send(replies)
        except StopIteration as end:
            return end.value, rounds
        replies = [str(call.command) for call in request.calls]
        rounds.append(list(replies))


def request_of(*commands: str, **how: Any) -> Request[Any]:
    return Request(tuple(Call(command, ()) for command in commands), **how)


def asking(*rounds: str) -> Steps[str]:
    """A query that sends the commands of each round, and returns all replies."""
    said = ""
    for commands in rounds:
        said += "".join((yield request_of(*commands)))
    return said


def sent_first(*requests: Request[Any]) -> Request[Any]:
    """The first request of the queries that send these."""

    def send(request: Request[Any]) -> Steps[list[Any]]:
        return (yield request)

    return next(together([send(request) for request in requests]))


def test_queries_share_their_rounds() -> None:
    several = together([asking("A", "B"), asking("CD"), asking("E", "F", "G"), asking()])
    assert run(several) == (["AB", "CD", "EFG", ""], [["A", "C", "D", "E"], ["B", "F"], ["G"]])
    assert run(together([])) == ([], [])


def test_queries_take_any_number_of_rounds() -> None:
    answers, rounds = run(together([asking(*"A" * 3001), asking("A"), asking(*"A" * 3000)]))
    assert [len(answer) for answer in answers] == [3001, 1, 3000]
    assert [len(sent) for sent in rounds] == [3, *[2] * 2999, 1]


def test_requests_sent_together_write_if_one_does() -> None:
    assert not sent_first(request_of("A"), request_of("B")).writes
    assert sent_first(request_of("A"), request_of("B", writes=True)).writes
    assert sent_first(request_of("A", atomic=True), request_of("B")).atomic


def test_a_step_that_several_wait_in_is_taken_once() -> None:
    calls: list[str] = []
    first, second = (Blocking(partial(calls.append, name)) for name in "AB")

    def waiting(*steps: Blocking[None]) -> Steps[int]:
        yield from steps
        return len(steps)

    several = together([waiting(first), waiting(first, first), waiting(first, second)])
    assert next(several) is first  # coroutines await its own
    step = several.send(None)
    assert isinstance(step, Blocking)
    assert calls == []
    with pytest.raises(StopIteration) as end:
        several.send(step.call())
    assert (end.value.value, calls) == ([1, 2, 2], ["A", "B"])


class Question:
    def __init__(self, *rounds: str) -> None:
        self.rounds = rounds

    def steps(self, view: View, keys: Keys) -> Steps[str]:
        return asking(*self.rounds)


def test_several_questions() -> None:
    several = Several([Question("A", "B"), Question("C")])
    assert run(several.steps(View(PLAIN), KEYS)) == (["AB", "C"], [["A", "C"], ["B"]])


def test_those_that_cost_much_go_in_several_round_trips() -> None:
    costs = [FULL // 2, FULL // 2, 1, 2 * FULL, FULL]

    def queries() -> list[Steps[Any]]:
        return [one(Call(name, (), cost=cost)) for name, cost in zip("ABCDE", costs, strict=True)]

    assert run(together(queries(), at_once=3)) == (list("ABCDE"), [["A", "B"], ["C"], ["D"], ["E"]])
    assert run(together(queries())) == (list("ABCDE"), [list("ABCDE")])


def test_those_that_go_on_come_first_and_as_few_at_once() -> None:
    answers, trips = run(together([asking(name, name.lower()) for name in "ABC"], at_once=2))
    assert answers == ["Aa", "Bb", "Cc"]
    assert trips == [["A", "B"], ["a", "b"], ["C"], ["c"]]


def questions() -> set[type]:
    """The classes of all questions about an index."""
    modules = [
        import_module(f"django_zrank.queries.{one.name}") for one in pkgutil.iter_modules(requests.__path__)
    ]
    classes = {value for module in modules for value in vars(module).values() if isinstance(value, type)}
    return {each for each in classes if "steps" in vars(each) and not getattr(each, "_is_protocol", False)}


@pytest.mark.part("sql")
def test_every_question_has_an_answer_by_sql() -> None:
    answers = import_module("django_zrank.sql")._ANSWERS
    assert questions() - {Several} == set(answers)


@pytest.mark.part("shards")
def test_every_question_has_an_answer_over_shards() -> None:
    for_one_shard = {ScoreByCommand}
    assert questions() - for_one_shard == set(import_module("django_zrank.shards.queries")._ANSWERS)


def unread(*modules: ModuleType) -> set[str]:
    """The fields of a draw that no code of ``modules`` reads."""
    nodes = [node for module in modules for node in ast.walk(ast.parse(inspect.getsource(module)))]
    return set(Draw._fields) - {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_every_parameter_of_a_draw_is_read_wherever_members_are_drawn() -> None:
    of_the_answer = {"given"}
    assert unread(draws) == of_the_answer | {"sort_key"}  # a hint for others


@pytest.mark.part("sql")
def test_every_parameter_of_a_draw_is_read_by_sql() -> None:
    of_the_answer = {"given"}
    modules = import_module("django_zrank.sql.sampling"), import_module("django_zrank.sql")
    # chance reads the seed
    assert unread(*modules) == of_the_answer | {"seed", "sort_key"}


def test_recommend_many_has_the_parameters_of_recommend() -> None:
    one, many = (inspect.signature(verb).parameters for verb in (Ranking.recommend, Ranking.recommend_many))
    assert one.keys() - many.keys() == {"member", "where", "seed"}
    assert many.keys() - one.keys() == {"members"}
