"""Populations put into an index directly, past the database: for tests of what Redis answers."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import uuid4

from django_zrank import RankIndex
from django_zrank.store import LOAD_LIMIT, Change, Store
from django_zrank.sync.rows import encode as encode_rows
from tests.builds import load_rows, start, trust


def fill(index: type[RankIndex], scores: Mapping[Any, Any]) -> Store:
    """Make the index hold exactly ``scores``: primary key -> value of the first criterion."""
    instance = index.instance()
    encode, to_text = instance.ordering.encode, instance.to_text
    return _build(instance, (Change(to_text(pk), encode((score,))[0]) for pk, score in scores.items()))


def load(index: type[RankIndex], rows: Iterable[Sequence[Any]]) -> Store:
    """Make the index hold exactly ``rows`` as a rebuild would: each a primary key, then the values at every path of the
    order and of the facets, none of them to-many. Sorted by the first criterion they go in fastest."""
    instance = index.instance()
    found = encode_rows(instance, rows, [])
    return _build(instance, (Change(str(pk), score, membership) for pk, score, membership in found))


def _build(index: RankIndex, changes: Iterable[Change]) -> Store:
    """Build each shard of its own members. Returns the store of the last one."""
    stores = {part.name: Store(part.name, part.layout) for part in index.holders}
    building = uuid4().hex
    for store in stores.values():
        start(store, building)
    while batch := list(islice(changes, LOAD_LIMIT)):
        own: dict[str, list[Change]] = {}
        for change in batch:
            own.setdefault(index.holder_of(str(change.member)).name, []).append(change)
        for name, some in own.items():
            assert load_rows(stores[name], building, some)
    for store in stores.values():
        assert store.swap_rebuilt(building)
    return store


def populate(index: type[RankIndex], rows: Mapping[Any, Mapping[str, Any]]) -> Store:
    """Make the index hold exactly ``rows``: primary key -> value at every path of its order and facets.

    To-many paths have a collection of values. Written key by key from what the keys are said to hold, not by the app's
    own scripts.
    """
    for part in index.instance().holders:
        own = {pk: row for pk, row in rows.items() if index.instance().holder_of(part.to_text(pk)) is part}
        store = _populate(part, own)
    return store


def _populate(instance: RankIndex, rows: Mapping[Any, Mapping[str, Any]]) -> Store:
    store, layout = Store(instance.name, instance.layout), instance.layout
    client, build = store.client, uuid4().hex
    live = store.keys.at(build).root
    if old := [*client.scan_iter(f"{glob.escape(store.keys.tag)}:*")]:
        client.delete(*old)
    encode, pipeline = instance.ordering.encode, client.pipeline()
    for pk, row in rows.items():
        score, tie = encode([row[path] for path in instance.ordering.paths])
        text = instance.to_text(pk).encode()
        many = {
            path: value if isinstance(value, (set, frozenset, list)) else [value]
            for path, value in row.items()
        }
        names = instance.faceting.rankings({path: many[path] or [None] for path in instance.faceting.paths})
        membership = tie + "\0".join(names).encode()
        if membership:
            pipeline.hset(f"{live}:memberships", text, membership)  # type: ignore[arg-type]
        for name in names:
            pipeline.zadd(f"{live}:rankings", {name: 0})
        for key in (live, *(f"{live}:{name}" for name in names)):
            pipeline.zadd(key, {tie + text: score})
            if layout.beside:
                value = tie + f"{score:.17g}".encode()
                pipeline.zadd(f"{key}:values", {value: score})
                pipeline.hincrby(f"{key}:counts", value, 1)
    pipeline.execute()
    trust(store, build)
    return store
