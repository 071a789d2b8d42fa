"""Permissions: to use the views, and to ask as a member."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _
from rest_framework.permissions import IsAuthenticated
from rest_framework.request import Request
from rest_framework.settings import api_settings

from ..exceptions import NotRanked
from ..index import RankIndex


class IsOwner(IsAuthenticated):
    """Allows users who have signed in to ask as members of their own, by the index's ``owner``, and as no other member.

    To allow others as well, combine it: ``IsOwner | IsAdminUser``.
    """

    message = _("You can't ask as somebody else.")

    def has_object_permission(self, request: Request, view: Any, obj: Any) -> bool:
        if not self.has_permission(request, view):
            return False
        index: RankIndex = view.get_index()
        owner = index.get_owner()
        if owner is not None:
            # A user with several rows may ask as any of them, not only as the first.
            own = type(obj)._default_manager.filter(**{owner: request.user.pk})
            return bool(own.filter(pk=obj.pk).exists())
        try:
            return bool(index.get_member(request.user) == obj)
        except (ImproperlyConfigured, NotRanked):
            return False


def get_permission_classes() -> list[Any]:
    """The project's ``DEFAULT_PERMISSION_CLASSES``; ``[IsAuthenticated]`` if the project sets none, as REST
    framework's own default lets everybody in."""
    if "DEFAULT_PERMISSION_CLASSES" in api_settings.user_settings:
        return list(api_settings.DEFAULT_PERMISSION_CLASSES)
    return [IsAuthenticated]
