"""The app's errors as REST framework answers them. Each has a stable ``code``, which docs/rest.md lists."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from django.core.exceptions import TooManyFieldsSent
from django.utils.translation import gettext_lazy as _
from rest_framework.exceptions import APIException, NotFound, ParseError

from ..conf import get_settings
from ..exceptions import FilterNotReady, FilterTooLarge, IndexUnavailable, NotRanked


class AmbiguousMember(APIException):
    """400: several members are the user's. ``parameters`` of the response tell them apart."""

    status_code = 400
    default_detail = _("Several members of this ranking are yours.")
    default_code = "ambiguous_member"

    def __init__(self, parameters: Sequence[str]) -> None:
        choose = _("Choose one by {names}.").format(names=", ".join(parameters)) if parameters else ""
        super().__init__({"detail": f"{self.default_detail} {choose}".strip(), "parameters": parameters})


class FiltersTooLarge(APIException):
    """400: no facet covers a combined filter, and too many members pass each of them."""

    status_code = 400
    default_detail = _("Too many members pass these filters for them to be combined.")
    default_code = "filter_too_large"


class TooManyParameters(ParseError):
    """400: Django refuses the query string. Its own answer is a page, and REST framework's debugging a 500."""

    default_detail = _("There are too many parameters.")
    default_code = "too_many_parameters"


class KeyReused(APIException):
    """422: the idempotency key of a change is that of another one."""

    status_code = 422
    default_detail = _("This idempotency key was used for another change.")
    default_code = "key_reused"


class MemberNotRanked(NotFound):
    """404: the member has no rank, or the user owns no row of the model."""

    default_detail = _("This member is not in the ranking.")
    default_code = "not_ranked"


class NoOwner(NotFound):
    """404: the index declares no ``owner``, so the user's row can't be looked up."""

    default_detail = _("Members of this ranking don't belong to users.")
    default_code = "no_owner"


class NoIndex(NotFound):
    """404: the path names an unknown index; or none, and there is no default index."""

    default_detail = _("No ranking is served here. Name an index in the path.")
    default_code = "no_index"


class RankingUnavailable(APIException):
    """503: the index is not built, or its Redis can't be reached. The response doesn't say which."""

    status_code = 503
    default_detail = _("The ranking is unavailable at the moment.")
    default_code = "index_unavailable"

    @property
    def wait(self) -> int:
        """Seconds, which REST framework's exception handler sends as ``Retry-After``."""
        return max(1, math.ceil(get_settings().retry_after))


class FiltersNotReady(RankingUnavailable):
    """503: a combined filter isn't computed yet."""

    default_detail = _("These filters take longer to compute.")
    default_code = "filter_not_ready"


ANSWERS: Final[dict[type[Exception], type[APIException]]] = {
    NotRanked: MemberNotRanked,
    FilterTooLarge: FiltersTooLarge,
    FilterNotReady: FiltersNotReady,
    IndexUnavailable: RankingUnavailable,
    TooManyFieldsSent: TooManyParameters,
}
"""The answers to errors that views raise."""
