"""The view that changes scores (write-behind)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from django.db import connections, models, transaction
from django.utils.translation import gettext_lazy as _
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ParseError, ValidationError
from rest_framework.parsers import JSONParser
from rest_framework.permissions import IsAdminUser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.settings import api_settings

from ..codec.units import EXACT, EXACT_LOW
from ..index import RankIndex
from .base import IndexViewSet
from .exceptions import KeyReused
from .schemas import component_name

__all__ = ["IDEMPOTENCY_KEY", "LONGEST_KEY", "ChangeSerializer", "ScoreViewSet", "get_change_serializer"]

IDEMPOTENCY_KEY: Final = "Idempotency-Key"
LONGEST_KEY: Final = 255

_NAMES: Final = 10
_LONGEST_NAME: Final = 100
"""Unknown fields that a response names, and the characters of a name that it shows."""


class ChangeSerializer(serializers.Serializer[Any]):
    """The body of a request. A misspelt field is refused, as it would be taken for the default."""

    def to_internal_value(self, data: Any) -> Any:
        unknown = [name for name in data if name not in self.fields] if isinstance(data, Mapping) else []
        if unknown:
            # As text that can be sent: a name may have half of a surrogate pair, or thousands of characters.
            names = (str(name)[:_LONGEST_NAME].encode(errors="replace").decode() for name in unknown[:_NAMES])
            raise ValidationError({name: [_("There is no such field.")] for name in names})
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


class ScoreViewSet(IndexViewSet):
    """Change the score of a member, which is ranked at once.

    Give each change an `Idempotency-Key` of its own, such as a UUID: sent again with the same key within a day, after a
    lost answer or a 503, it counts once.
    """

    permission_classes = [IsAdminUser]
    """The permissions, checked for the request and for the member. Users that pass them set scores: ``[IsOwner]`` lets
    players report their own."""

    parser_classes = [JSONParser]
    pagination_class = None

    @classmethod
    def as_view(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a view outside of transactions, also with ``ATOMIC_REQUESTS``: a change can't be rolled back, and no
        member is woken inside a transaction."""
        view = super().as_view(*args, **kwargs)
        for using in connections:
            view = transaction.non_atomic_requests(using)(view)
        return view

    def get_filters(self) -> Mapping[str, str]:
        return {}

    def get_serializer_class(self) -> Any:
        try:
            return get_change_serializer(self._get_changed_index())
        except NotFound:  # REST framework shows a form on the page that says so
            return ChangeSerializer

    def get_idempotency_key(self) -> str:
        """Return the idempotency key of this change, ``""`` for none. Default: the user's id and the header. Redis
        holds only a digest of it."""
        key = self.request.headers.get(IDEMPOTENCY_KEY, "")
        if IDEMPOTENCY_KEY in self.request.headers and not key.strip():
            raise ValidationError({IDEMPOTENCY_KEY: [_("This field may not be blank.")]}, code="blank")
        if len(key) > LONGEST_KEY:
            message = _("Ensure this field has no more than {max_length} characters.")
            raise ValidationError(
                {IDEMPOTENCY_KEY: [message.format(max_length=LONGEST_KEY)]}, code="max_length"
            )
        user = str(getattr(self.request.user, "pk", None) or "")  # UNAUTHENTICATED_USER may be None
        # The length first: an id may be text with a colon.
        return f"{len(user)}:{user}:{key}" if key else ""

    def change(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change the score of one member."""
        self.get_query().read(request.query_params)
        index, key = self._get_changed_index(), self.get_idempotency_key()
        try:
            given = request.data
        except (ParseError, RecursionError) as error:
            detail = (
                error.detail if isinstance(error, ParseError) else _("JSON parse error: nested too deeply")
            )
            raise ValidationError({api_settings.NON_FIELD_ERRORS_KEY: [detail]}, code="parse_error") from None
        serializer = self.get_serializer(data=given)
        serializer.is_valid(raise_exception=True)
        ((_name, change),) = serializer.validated_data.items()
        member = self.get_member(
            kwargs[self.lookup_url_kwarg or self.lookup_field], lookup_field=self.lookup_field
        )
        make = index.scores.increment if index.rule == "sum" else index.scores.submit
        try:
            score = make(member, change, key=key)
        except ValueError as error:
            parameter, _colon, message = str(error).partition(": ")
            if parameter == "key":
                raise KeyReused from error
            raise ValidationError({parameter: [message]}, code="invalid") from error
        return Response({"pk": member.pk, "score": score})

    def _get_changed_index(self) -> RankIndex:
        if not self.served.rule:
            raise NotFound(_("The scores of this index can't be changed here."))
        return self.served
