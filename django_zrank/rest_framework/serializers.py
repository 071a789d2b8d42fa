"""What a response shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.constants import LOOKUP_SEP
from rest_framework import serializers

from ..entries import Entry
from ..index import RankIndex

__all__ = ["EntrySerializer", "combine"]


class EntrySerializer(serializers.Serializer[Entry]):
    """One member of a ranking: what the ranking itself knows.

    The values are Python's own; REST framework's encoder makes text of dates, durations and UUIDs.
    """

    pk = serializers.ReadOnlyField()
    score = serializers.ReadOnlyField()
    rank = serializers.IntegerField(read_only=True)


def combine(
    index: RankIndex,
    entries: Sequence[Entry],
    rows: Sequence[models.Model],
    serializer: Any,
) -> list[dict[str, Any]]:
    """For each of ``rows`` its entry in the ranking, then what ``serializer`` (``many=True``) shows of it.

    ``pk``, ``score`` and ``rank`` are the ranking's. A field of the serializer may bear one of these names if
    it shows the same thing: the primary key, or the model field that is the score. Otherwise one of the two
    would be lost without a word, so it is an ``ImproperlyConfigured``.
    """
    shown = serializer.data
    if shown:
        _refuse_clash(index, serializer.child, shown[0])
    entry_serializer = EntrySerializer()
    ranked = {entry.pk: entry_serializer.to_representation(entry) for entry in entries}
    return [ranked[row.pk] | data | ranked[row.pk] for row, data in zip(rows, shown, strict=True)]


def _refuse_clash(
    index: RankIndex, serializer: serializers.BaseSerializer[Any], shown: Mapping[str, Any]
) -> None:
    same = {
        "pk": {"pk", index.model._meta.pk.name},
        "score": {index.ordering.first.path.replace(LOOKUP_SEP, ".")},
        "rank": set[str](),
    }
    fields = getattr(serializer, "fields", {})
    for name in same.keys() & shown.keys():
        if name not in fields or fields[name].source not in same[name]:
            raise ImproperlyConfigured(
                f"{type(serializer).__name__}: a result has the ranking's own {name!r} already, "
                f"so a field that shows something else needs another name."
            )
