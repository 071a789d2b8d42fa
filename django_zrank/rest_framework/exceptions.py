"""The app's errors as REST framework answers them."""

from __future__ import annotations

import math

from django.utils.translation import gettext_lazy as _
from rest_framework import status
from rest_framework.exceptions import APIException, NotFound

from ..conf import get_settings

__all__ = ["KeyReused", "MemberNotRanked", "NoOwner", "RankingUnavailable"]


class KeyReused(APIException):
    """422: the idempotency key of a change is that of another one."""

    status_code = status.HTTP_422_UNPROCESSABLE_ENTITY
    default_detail = _("This idempotency key was used for another change.")
    default_code = "key_reused"


class MemberNotRanked(NotFound):
    """404: the member has no rank, or the user owns no row of the model."""

    default_detail = _("This member is not in the ranking.")
    default_code = "not_ranked"


class NoOwner(NotFound):
    """404: the index declares no ``owner``, so the user's row can't be looked up."""

    default_code = "no_owner"

    def __init__(self, index: str) -> None:
        message = _("The index “{index}” declares no owner, so it can't tell which member is yours.")
        super().__init__(message.format(index=index))


class RankingUnavailable(APIException):
    """503: the index is not built, or its Redis can't be reached. The response doesn't say which."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_detail = _("The ranking is unavailable at the moment.")
    default_code = "unavailable"

    @property
    def wait(self) -> int:
        """Seconds, which REST framework's exception handler sends as ``Retry-After``."""
        return max(1, math.ceil(get_settings().retry_after))
