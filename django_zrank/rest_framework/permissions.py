"""Who may ask as whom."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from ..exceptions import NotRanked
from ..index import RankIndex

__all__ = ["IsOwner"]


class IsOwner(BasePermission):
    """Lets a user ask as a member that is the user's own, by the index's ``owner``, and as nobody else.

    A view that lets others ask as well says so beside it: ``IsOwner | IsAdminUser``.
    """

    message = _("You can't ask as somebody else.")

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        user = request.user
        if not (user and user.is_authenticated):
            return False
        index: RankIndex = view.get_index()  # type: ignore[attr-defined]
        owner = index.get_owner()
        if owner is not None:
            # Somebody who owns several rows may ask as any of them, not only as the first.
            own = type(obj)._default_manager.filter(**{owner: user.pk})
            return bool(own.filter(pk=obj.pk).exists())
        try:
            return bool(index.get_member(user) == obj)
        except (ImproperlyConfigured, NotRanked):
            return False
