"""The demo's superuser: with a password that the page tells, so on a developer's machine only."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import get_user_model

__all__ = ["ADMIN", "make_admin"]

ADMIN = "admin"
"""Its name and its password."""


def make_admin() -> None:
    """See to it that there is one with DEBUG, and none with that password without it."""
    users = get_user_model().objects
    if settings.DEBUG:
        user, is_new = users.get_or_create(username=ADMIN, defaults={"is_staff": True, "is_superuser": True})
        if is_new or not user.has_usable_password():
            user.set_password(ADMIN)
            user.save()
        return
    for user in users.filter(username=ADMIN):
        if user.check_password(ADMIN):
            user.set_unusable_password()
            user.save()
