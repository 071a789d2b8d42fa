"""The serializers of results and of changes of scores, and the JSON schemas of an index's values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db.models.constants import LOOKUP_SEP
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers

from ..codec.fields import follow
from ..codec.kinds import Kind, Schema, kind_of
from ..codec.spelling import REAL, WHOLE
from ..codec.units import EXACT, EXACT_LOW
from ..entries import Entry
from ..index import RankIndex

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
LONGEST_KEY: Final = 255

REPLAYED: Final = "Idempotent-Replayed"
"""The header of a response to a change that had been made before, under the same key."""


class EntrySerializer(serializers.Serializer[Entry]):
    """One member of a ranking."""

    # Python's own values; REST framework's encoder makes text of dates, durations and UUIDs.
    pk = serializers.JSONField(read_only=True)
    score = serializers.JSONField(read_only=True)
    rank = serializers.IntegerField(
        read_only=True,
        allow_null=True,
        help_text=_("1 is best. Null if no facet covers the filters: each rank would cost a look-up."),
    )
    shown = serializers.JSONField(
        read_only=True, help_text=_("The columns that the index shows. Left out if it shows none.")
    )

    def to_representation(self, instance: Entry) -> dict[str, Any]:
        result = super().to_representation(instance)
        if not instance.shown:
            result.pop("shown", None)
        return result


class UnrankedSerializer(EntrySerializer):
    """The same without the rank. Of an index with ``shards``, ranks are then not fetched."""

    rank = None  # type: ignore[assignment]  # as REST framework leaves out an inherited field


def show(entry: Entry) -> dict[str, Any]:
    """Return what :class:`EntrySerializer` shows of an entry."""
    result = {"pk": entry.pk, "score": entry.score, "rank": entry.rank}
    return {**result, "shown": entry.shown} if entry.shown else result


def shows_rank(serializer_class: Any) -> bool:
    """Return False for a serializer that leaves out the rank by ``rank = None``."""
    return getattr(serializer_class, "rank", True) is not None


def combine(index: RankIndex, entries: Sequence[Entry], serializer: Any) -> list[dict[str, Any]]:
    """Return each entry of a ranking, joined with what ``serializer`` (``many=True``) shows of its row.

    ``pk``, ``score`` and ``rank`` are the ranking's; ``rank = None`` in the serializer leaves that one out. A field of
    the serializer may have one of these names if it shows the same value: the primary key, or the model field that is
    the score. Otherwise raises ``ImproperlyConfigured``, as one of the two would be lost.
    """
    shown, child = serializer.data, serializer.child
    same = {
        "pk": {"pk", index.model._meta.pk.name},
        "score": {index.ordering.first.path.replace(LOOKUP_SEP, ".")},
        "rank": set[str](),
    }
    for name in same.keys() & shown[0].keys() if shown else ():
        field = getattr(child, "fields", {}).get(name)
        if field is None or field.source not in same[name]:
            raise ImproperlyConfigured(
                f"{type(child).__name__}: a result has the ranking's own {name!r} already, so a field that shows "
                "something else needs another name."
            )
    names = ("pk", "score", "rank") if shows_rank(child) else ("pk", "score")
    ranked = ({name: getattr(entry, name) for name in names} for entry in entries)
    return [entry | row | entry for entry, row in zip(ranked, shown, strict=True)]


class ChangeSerializer(serializers.Serializer[Any]):
    """The body of a request. A misspelt field is refused, as it would be taken for the default."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = [name for name in data if name not in self.fields] if isinstance(data, Mapping) else []
        if unknown:
            # As text that can be sent: a name may have half of a surrogate pair, or thousands of characters.
            names = (str(name)[:100].encode(errors="replace").decode() for name in unknown[:10])
            raise serializers.ValidationError({name: [_("There is no such field.")] for name in names})
        return super().to_internal_value(data)


class _Spelled(serializers.Field[Any, Any, Any, Any]):
    """A number that a client may send as text, too."""

    pattern = REAL

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, str) and not re.fullmatch(self.pattern, data):
            self.fail("invalid")
        return super().to_internal_value(data)


class ScoreField(_Spelled, serializers.DecimalField):
    """A decimal number."""


class WholeScoreField(_Spelled, serializers.IntegerField):
    """A whole number."""

    pattern = WHOLE


@lru_cache(maxsize=1024)
def get_change_serializer(index: RankIndex) -> type[serializers.Serializer[Any]]:
    """The serializer of a request: ``by`` if scores are incremented, else ``value``."""
    column: Any = index.column.field  # type: ignore[union-attr]
    name, help_text = "value", _("The score submitted.")
    options: dict[str, Any] = {"min_value": EXACT_LOW, "max_value": EXACT}
    kind: Any = WholeScoreField
    if score_schema(index) == {"type": "number"}:
        kind, options = ScoreField, {"coerce_to_string": False}
        options |= {"max_digits": column.max_digits, "decimal_places": column.decimal_places}
    if index.rule == "sum":
        name, help_text = "by", _("What to add to the score.")
        options["default"] = 1
    field = kind(help_text=help_text, **options)
    return type(f"{component_name(index.name)}Change", (ChangeSerializer,), {name: field})


# JSON schemas


def key_schema(index: RankIndex) -> Schema:
    return dict(kind_of(index.model._meta.pk).schema)


def score_schema(index: RankIndex) -> Schema:
    return dict(index.ordering.first.kind.schema)


def shown_schema(index: RankIndex) -> Schema:
    """The columns that the index shows, as a response shows them: any JSON of a field that is of no kind."""
    kinds = {path: kind_of([*follow(index.model, path)][-1]) for path in index.attached_paths()}
    schemas = {
        path: {} if type(kind) is Kind else {**kind.schema, "nullable": True} for path, kind in kinds.items()
    }
    return object_schema(**schemas)


def distance_schema(index: RankIndex) -> Schema:
    """One side of a band, as a response shows it."""
    return dict(index.ordering.first.kind.distance_schema)


def facet_schema(index: RankIndex, path: str) -> Schema:
    """A value of a facet, as a response shows it. A row may have a value that ``choices`` doesn't list."""
    return dict(index.faceting.reading(path).kind(path).schema)


def component_name(text: str) -> str:
    """The words of ``text`` as the name of a component."""
    return "".join(word[:1].upper() + word[1:] for word in re.split(r"\W+", text))


def enumeration(words: Iterable[str]) -> Schema:
    """One of ``words``; any text if there are none, as an enumeration must not be empty."""
    listed = list(words)
    return {"type": "string", "enum": listed} if listed else {"type": "string"}


def one_of(schemas: Iterable[Schema]) -> Schema:
    """Any of ``schemas``, those of several indexes."""
    different: list[Schema] = []
    for schema in schemas:
        different += [one for one in schema.get("anyOf", [schema]) if one not in different]
    # Not oneOf: a whole number is a number too.
    return different[0] if len(different) == 1 else {"anyOf": different} if different else {}


def object_schema(**properties: Mapping[str, Any]) -> Schema:
    """An object that has all of ``properties``."""
    return {"type": "object", "properties": properties, "required": list(properties)}
