"""The app without one of its guards, by the name that the model gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import sha1
from typing import Any, Final
from unittest import mock

from django_zrank.redis import scripts
from django_zrank.redis.scripts import Script
from django_zrank.store import Store
from django_zrank.sync import push, rebuild
from django_zrank.sync.marks import waiting_ids

__all__ = ["BROKEN"]


@contextmanager
def _rewritten(script: Script, old: str, new: str) -> Iterator[None]:
    assert script.source.count(old) == 1, f"{script.name}.lua says something else by now"
    source = script.source.replace(old, new)
    sha = sha1(source.encode(), usedforsecurity=False).hexdigest()
    with mock.patch.multiple(script, source=source, sha=sha):
        yield


def _token_last() -> AbstractContextManager[Any]:
    apply_changes = Store.apply_changes

    def broken(store: Store, epoch: Any, changes: Any) -> Any:
        return apply_changes(store, store.begin_write(), changes)

    return mock.patch.object(Store, "apply_changes", broken)


def _marks_last() -> AbstractContextManager[Any]:
    retire = rebuild.retire

    def broken(index: Any, covered: Any, builds: Any) -> None:
        retire(index, waiting_ids(index, 1000), builds)

    return mock.patch.object(rebuild, "retire", broken)


_write: Final = partial(_rewritten, scripts.APPLY_CHANGES)

BROKEN: Final[dict[str, Callable[[], AbstractContextManager[Any]]]] = {
    "token first": _token_last,
    "refusal": partial(_write, "if versions[n] and tonumber(versions[n]) > token then", "if false then"),
    "second refusal": partial(mock.patch.object, push, "_REFUSALS", 1),
    "both builds": partial(_write, "pairs({[live] = generation, [shadow] = building})", "pairs({[live] = generation})"),
    "written since": partial(
        _rewritten, scripts.LOAD_ROWS, "if is_guarded then\n    packed", "if false then\n    packed"
    ),
    "older tokens": partial(_write, "if state[3] and token < tonumber(state[3]) then", "if false then"),
    "marks first": _marks_last,
}
