"""The app without one of its guards, by the name that the model gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from hashlib import sha1
from typing import Any, Final
from unittest import mock

from django_zrank import builds
from django_zrank.index import RankIndex
from django_zrank.redis import scripts
from django_zrank.redis.scripts import Script
from django_zrank.store import Store
from django_zrank.sync import health, marks, push, rebuild
from django_zrank.sync.marks import waiting_ids
from django_zrank.write_behind import changes, extension, flush
from django_zrank.write_behind.declaration import WriteBehindIndex
from django_zrank.write_behind.store import TAKE_PENDING, PendingStore
from tests.recoding import locked_anyway, recoded
from tests.scripts import every_script, preceded_scripts, variants
from tests.writes import begin_write

__all__ = ["BROKEN"]


@contextmanager
def _rewritten(script: Script, old: str, new: str) -> Iterator[None]:
    with ExitStack() as stack:
        for one in variants(script):
            assert one.source.count(old) == 1, f"{one.name}.lua says something else by now"
            source = one.source.replace(old, new)
            sha = sha1(source.encode(), usedforsecurity=False).hexdigest()
            stack.enter_context(mock.patch.multiple(one, source=source, sha=sha))
        yield


_write: Final = partial(_rewritten, scripts.APPLY_CHANGES)


def _token_last() -> AbstractContextManager[Any]:
    applying_changes = Store.applying_changes

    def broken(store: Store, epoch: Any, changes: Any, **how: Any) -> Any:
        return applying_changes(store, begin_write(store), changes, **how)

    return mock.patch.object(Store, "applying_changes", broken)


def _marks_last() -> AbstractContextManager[Any]:
    retire = marks.retire

    def broken(index: Any, covered: Any, builds: Any) -> None:
        retire(index, waiting_ids(index, 1000), builds)

    return mock.patch.object(rebuild, "retire", broken)


@contextmanager
def _no_history() -> Iterator[None]:
    with ExitStack() as stack:
        for script in (*every_script(), *preceded_scripts()):
            if "identity" in script.libraries:
                stack.enter_context(_rewritten(script, " .. '/' .. digits_after('master_replid:', info)", ""))
        yield


def _no_batches() -> AbstractContextManager[Any]:
    replay = marks.replay

    def broken(index: Any, health: Any, **known: Any) -> Any:
        return replay(index, health._replace(term=str(2**62)), **known)  # beyond all that was written

    return mock.patch.object(health, "replay", broken)


@contextmanager
def _no_traces() -> Iterator[None]:
    """Neither a health check nor a drain compares them."""
    with (
        mock.patch.object(health, "has_all", return_value=True),
        mock.patch.object(builds, "has_all", return_value=True),
        _write("if not traces_since(traces, trace) then", "if false then"),
    ):
        yield


@contextmanager
def _any_term() -> Iterator[None]:
    """The database and Redis both compare a flush's term."""
    with (
        recoded(flush, "_carry", "term=term, flushed=flight", "flushed=flight"),
        mock.patch.object(PendingStore, "confirm_flush", return_value=True),
    ):
        yield


@contextmanager
def _noted_later() -> Iterator[None]:
    """A flush writes in a transaction of its own, before the one that notes it."""
    carry, write = flush._carry, flush._Writing.write

    def broken(index: Any, column: Any, store: Any, flight: Any, *known: Any) -> Any:
        write(flush._Writing(index, column), flight.changes)
        return carry(index, column, store, flight, *known)

    with (
        mock.patch.object(flush, "_carry", broken),
        mock.patch.object(flush._Writing, "write"),
    ):
        yield


BROKEN: Final[dict[str, Callable[[], AbstractContextManager[Any]]]] = {
    "token first": _token_last,
    "refusal": partial(_write, "if versions[n] and tonumber(versions[n]) > token then", "if false then"),
    "second refusal": partial(mock.patch.object, push, "_REFUSALS", 1),
    "both builds": partial(_write, "pairs({[live] = build, [shadow] = building})", "pairs({[live] = build})"),
    "written since": partial(
        _rewritten, scripts.LOAD_ROWS, "if is_guarded then\n    packed", "if false then\n    packed"
    ),
    "traces": _no_traces,
    "pieces": partial(mock.patch.object, push, "trace_of", lambda *write: ""),
    "abandoned": partial(_write, "if not since or since ~= ''", "if false and since ~= ''"),
    "loaded": partial(
        _rewritten, scripts.SWAP_REBUILT, "(redis.call('HGET', meta, 'loaded') or '0') ~= loaded", "false"
    ),
    "older tokens": partial(_write, "if state[3] and token < tonumber(state[3]) then", "if false then"),
    "marks first": _marks_last,
    "fence": partial(mock.patch.object, marks, "lock", locked_anyway),
    "history": _no_history,
    "lost": partial(
        _rewritten,
        next(script for script in preceded_scripts() if script.name == "start_rebuild"),
        "if build and (is_evicted or not is_same) then",
        "if false then",
    ),
    "batches": _no_batches,
    "owner": partial(recoded, rebuild, "_enter", "if polite and health.build and", "if False and"),
    "declaration": partial(mock.patch.object, RankIndex, "declares", lambda index, build: True),
    "declaration of writes": partial(recoded, push, "known", "if not (index", "if False and (index"),
    "flush marks": partial(mock.patch.object, flush, "_mark", lambda index, members: None),
    "merge": partial(
        _rewritten,
        changes.CHANGE_SCORES,
        "waiting = redis.call('HMGET', pending, unpack(members))",
        "waiting = {}",
    ),
    "no better": partial(
        _rewritten,
        changes.CHANGE_SCORES,
        "if building and gaining[1] then",
        "gaining, gains = members, changes if building then",
    ),
    "write_behind": partial(mock.patch.object, WriteBehindIndex, "further_terms", lambda index: []),
    "number": _noted_later,
    "flushes": partial(
        _rewritten, TAKE_PENDING, "if tonumber(state[3] or 0) < tonumber(had) then", "if false then"
    ),
    "one before": partial(recoded, flush, "_carry", ", flushed=flight.number - 1)", ")"),
    "same term": _any_term,
    "reconcile": partial(mock.patch.object, extension, "reconcile", return_value=True),
    "unknown flushes": partial(
        recoded, extension, "reconcile", "members=() if lost else members", "members=()"
    ),
}
