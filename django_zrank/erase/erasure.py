"""Erasure of a member: its primary key is removed from every place that holds it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

from django.db.models import Q
from django.utils import timezone

from ..capture.triggers import builds_of
from ..capture.watched_tables import every_row
from ..codec.fields import value_field
from ..conf import get_settings
from ..declaration import Index
from ..exceptions import Busy
from ..extension import installed
from ..models import SEVERAL, Batch
from ..queries.request import Call, Request
from ..redis.scripts import Script
from ..registry import registry
from ..store import Store
from ..sync.in_step import InStep
from ..sync.marks import OF_MEMBERS, Seen, forget_batches, named_by, spread, unmark, waiting_marks
from ..sync.push import push
from ..transactions import refuse_transaction
from . import Erased, StillRanked

FORGET_VERSION: Final = Script("forget_version", __package__)

_SCANNED: Final = 500
"""Keys that one round trip looks at, and removes."""

_KINDS: Final = ("rankings", "pending", "touched", "group", "remembered", "combined_filter", "marks")


def erase(index: Index, member: Any) -> Erased:
    """Remove the primary key of ``member`` from everything that is stored for ``index``. The row must be deleted, or
    have left the queryset.

    If there is no row, a pending change of the score is dropped; otherwise it is flushed first, as are those of the
    other indexes of the row. What is kept for replays remains. If the process is killed, or a shard can't be reached,
    call this again.

    Raises :exc:`~django_zrank.erase.StillRanked`; :exc:`~django_zrank.IndexUnavailable`;
    :exc:`~django_zrank.exceptions.Busy` if rows stay locked; ``ValueError`` for what can't be a member; and
    ``TransactionManagementError`` inside a transaction, whose deletions may be rolled back.
    """
    refuse_transaction(index.get_using(), "Erasing a member")
    text = index.to_text(member)
    pk, holder, settings = index.from_text(text), index.holder_of(text), get_settings()
    with timezone.override(None):  # as in a push
        ranked = list(index.get_ranked(Q(pk=pk)).order_by().values_list("pk", flat=True)[:1])
    if ranked:
        raise StillRanked(
            f"Index {index.name!r}: {index.model._meta.label} {ranked[0]!r} is still ranked, so the next push would "
            "bring it back. First delete the row, or take it out of the queryset of the index."
        )
    store, is_member = Store.of(holder), partial(_is_member, index, pk)
    erased = Erased(index.name, text)
    removed, remains = Counter(rankings=_count_rankings(store, text)), erased.remains
    has_row = every_row(index.model, index.get_using()).filter(pk=pk).exists()
    if has_row:
        # A flush changes the row, which leaves marks for every index that reads it. The others' come first, too: after
        # this erasure they would name the member here again.
        for each in (holder, *_relatives(index, pk)):
            for one in installed().values():
                if one.holds(Store.of(each), each.to_text(pk)):
                    one.bring(each)

    # Marks that are written from now on lead to the same, but none is deleted that this push may not contain.
    several = waiting_marks(index).filter(via=SEVERAL).values_list("id", "via", "member")
    if also := [mark for mark in several.iterator() if any(map(is_member, named_by(*mark[1:])))]:
        spread(index, also)
    named = waiting_marks(index).filter(via=None).values_list("id", "via", "member")
    marks: list[Seen] = [mark for mark in named.iterator() if is_member(mark[2])]
    pushed = push(index, [pk], noted=bool(marks))  # after which nobody can change its score
    if marks:
        if unmark(holder, marks, pushed.written[holder]):
            removed["marks"] = len(marks)
        else:  # another term or build has begun
            remains["marks"] = None
    if has_row and any(one.holds(store, text) for one in installed().values()):
        raise Busy(
            f"Index {index.name!r}: the score of {text} has changed in Redis, and is not written to its row, which may "
            "be locked. Run sync_zrank, and erase the member then."
        )

    def forget(holder: Index) -> tuple[str, str]:
        store = Store.of(holder)
        store.unlink_doomed()
        word: bytes = store.call(FORGET_VERSION, (store.keys.recent, store.keys.meta), (text,))
        return store.node(), word.decode()

    # One scan of a node finds the keys of all indexes there.
    step, nodes = InStep(index.holders), dict[str, list[Index]]()
    for holder, (node, word) in step.each(index.holders, forget).items():
        removed[word] += 1
        nodes.setdefault(node, []).append(holder)
    neighbours = {holders[0]: holders for holders in nodes.values()}
    for found in step.each(neighbours, lambda holder: _remove(neighbours[holder], text)).values():
        removed.update(found)
    for failure in step.failed.values():
        raise failure
    if removed["building"]:
        remains["newest writes"] = None
    for one in installed().values():
        for kind, (what, seconds) in one.expiring().items():
            if removed[kind]:
                remains[what] = timezone.now() + timedelta(seconds=seconds)

    for holder in index.holders:
        forget_batches(holder, settings.keep_marks)
    own = {holder.name for holder in index.holders}
    names = own.union(row.index for row in builds_of(index, index.get_using()))
    if names > own:
        remains["former shards"] = None
    batches = Batch.objects.using(index.get_using()).filter(index__in=names).values_list("at", "marks")
    kept = [
        at
        for at, marks in batches.iterator(chunk_size=20)
        if any(via in OF_MEMBERS and any(map(is_member, named_by(via, text))) for via, text in marks)
    ]
    if kept:
        remains["applied writes"] = max(kept) + timedelta(seconds=settings.keep_marks)
    erased.removed = {kind: removed[kind] for kind in _KINDS if removed[kind]}
    return erased


def _relatives(index: Index, pk: Any) -> list[Index]:
    """Return the parts that the member has in other indexes of the database: those that rank the same row, or one that
    has its primary key from the same row, such as that of a parent model."""
    key, others = value_field(index.model._meta.pk), registry.all()
    return [
        one.holder_of(one.to_text(pk))
        for one in others
        if one.name != index.name
        and one.get_using() == index.get_using()
        and value_field(one.model._meta.pk) is key
    ]


def _is_member(index: Index, pk: Any, text: str | None) -> bool:
    """Return True if ``text``, as the database casts it, is this primary key."""
    with suppress(ValueError):
        return text is not None and bool(index.from_text(text) == pk)
    return False


def _count_rankings(store: Store, member: str) -> int:
    """Return the number of rankings that a member stands in, in all builds."""
    count = 0
    for keys in map(store.keys.at, filter(None, store.read_meta("build", "building"))):
        calls = Call("ZSCORE", (keys.root,), (member,)), Call("HGET", (keys.memberships,), (member,))
        score, membership = store.read(calls)
        if score is not None or membership is not None:
            names = store.layout.names_of(membership or b"")
            count += 1 + len(names.split(b"\0") if names else ())
    return count


def _remove(holders: Sequence[Index], member: str) -> Counter[str]:
    """Remove a member from every key of ``holders``, all on one server, but those of builds, a few keys at a time.
    Return the numbers of removals by the words of the keys' names, and of keys that are left to expire."""
    removed, store = Counter[str](), Store.of(holders[0])
    parts = installed().values()
    expiring = {kind for one in parts for kind in one.expiring()}
    owners = {keys.tag: keys for keys in (Store.of(holder).keys for holder in holders)}
    for piece in store.scan_keys(Store.of(holders[0].declared).keys.tag.removesuffix("}"), _SCANNED):
        calls: list[tuple[str, Call]] = []
        for key in map(bytes.decode, piece):
            keys = owners.get(key[: key.find("}") + 1])
            if keys is None:
                continue
            kind = keys.kind_of(key)
            call = next(filter(None, (one.removal(keys, key, member) for one in parts)), None)
            if call and isinstance(call.command, Script):
                removed[kind] += store.call(call.command, call.keys, call.arguments)
            elif call:
                calls.append((kind, call))
            removed[kind] += kind in expiring
        replies = store.send(Request([call for _, call in calls])) if calls else []
        for (kind, _), reply in zip(calls, replies, strict=True):
            removed[kind] += reply
    return removed
