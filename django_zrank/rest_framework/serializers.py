"""The serializers of responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db.models.constants import LOOKUP_SEP
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ..entries import Entry
from ..index import RankIndex

__all__ = ["EntrySerializer", "KeyField", "ScoreField", "UnrankedSerializer", "combine", "shows_rank"]


class KeyField(serializers.ReadOnlyField):
    """A primary key, of the type that the model gives it."""


class ScoreField(serializers.ReadOnlyField):
    """A score, of the type that the model gives it."""


class EntrySerializer(serializers.Serializer[Entry]):
    """One member of a ranking."""

    # The values are Python's own; REST framework's encoder makes text of dates, durations and UUIDs.
    pk = KeyField()
    score = ScoreField()
    rank = serializers.IntegerField(
        read_only=True,
        allow_null=True,
        help_text=_("1 is best. Null if no facet covers the filters: each rank would cost a look-up."),
    )


class UnrankedSerializer(EntrySerializer):
    """The same without the rank. Of an index with ``shards``, ranks are then not fetched."""

    rank = None  # type: ignore[assignment]  # as REST framework leaves out an inherited field


def shows_rank(serializer_class: Any) -> bool:
    """Return False for a serializer that leaves out the rank by ``rank = None``."""
    return getattr(serializer_class, "rank", True) is not None


def combine(index: RankIndex, entries: Sequence[Entry], serializer: Any) -> list[dict[str, Any]]:
    """Return each entry of a ranking, joined with what ``serializer`` (``many=True``) shows of its row.

    ``pk``, ``score`` and ``rank`` are the ranking's; ``rank = None`` in the serializer leaves that one out. A field of
    the serializer may have one of these names if it shows the same value: the primary key, or the model field that is
    the score. Otherwise raises ``ImproperlyConfigured``, as one of the two would be lost.
    """
    shown = serializer.data
    if shown:
        _refuse_clash(index, serializer.child, shown[0])
    # As EntrySerializer shows it, for a tenth of the time.
    names = ("pk", "score", "rank") if shows_rank(serializer.child) else ("pk", "score")
    ranked = ({name: getattr(entry, name) for name in names} for entry in entries)
    return [entry | row | entry for entry, row in zip(ranked, shown, strict=True)]


_OWN: Final = frozenset(("pk", "score", "rank"))


def _refuse_clash(
    index: RankIndex, serializer: serializers.BaseSerializer[Any], shown: Mapping[str, Any]
) -> None:
    clashing = _OWN & shown.keys()
    if not clashing:
        return
    same = {
        "pk": {"pk", index.model._meta.pk.name},
        "score": {index.ordering.first.path.replace(LOOKUP_SEP, ".")},
        "rank": set[str](),
    }
    fields = getattr(serializer, "fields", {})
    for name in clashing:
        if name not in fields or fields[name].source not in same[name]:
            raise ImproperlyConfigured(
                f"{type(serializer).__name__}: a result has the ranking's own {name!r} already, "
                f"so a field that shows something else needs another name."
            )
