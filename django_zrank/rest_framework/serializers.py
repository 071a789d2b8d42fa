"""The serializers of results and of changes of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.constants import LOOKUP_SEP
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ..codec.units import EXACT, EXACT_LOW
from ..entries import Entry
from ..index import RankIndex
from .fields import component_name

__all__ = [
    "IDEMPOTENCY_KEY",
    "LONGEST_KEY",
    "REPLAYED",
    "ChangeSerializer",
    "EntrySerializer",
    "KeyField",
    "ScoreField",
    "UnrankedSerializer",
    "combine",
    "get_change_serializer",
    "shows_rank",
]

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
LONGEST_KEY: Final = 255

REPLAYED: Final = "Idempotent-Replayed"
"""The header of a response to a change that had been made before, under the same key."""


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


class ChangeSerializer(serializers.Serializer[Any]):
    """The body of a request. A misspelt field is refused, as it would be taken for the default."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = [name for name in data if name not in self.fields] if isinstance(data, Mapping) else []
        if unknown:
            # As text that can be sent: a name may have half of a surrogate pair, or thousands of characters.
            names = (str(name)[:100].encode(errors="replace").decode() for name in unknown[:10])
            raise serializers.ValidationError({name: [_("There is no such field.")] for name in names})
        return super().to_internal_value(data)


@lru_cache(maxsize=1024)
def get_change_serializer(index: RankIndex) -> type[serializers.Serializer[Any]]:
    """The serializer of a request: ``by`` if scores are incremented, else ``value``."""
    own: Any = index.column.field  # type: ignore[union-attr]
    options: dict[str, Any] = {"min_value": EXACT_LOW, "max_value": EXACT}
    kind: Any = serializers.IntegerField
    if isinstance(own, models.DecimalField):
        kind = serializers.DecimalField
        options = {
            "max_digits": own.max_digits,
            "decimal_places": own.decimal_places,
            "coerce_to_string": False,
        }
    name, help_text = "value", _("The score submitted.")
    if index.rule == "sum":
        name, help_text = "by", _("What to add to the score.")
        options["default"] = 1
    return type(
        f"{component_name(index.name)}Change",
        (ChangeSerializer,),
        {name: kind(help_text=help_text, **options)},
    )
