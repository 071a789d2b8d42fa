"""The demo's superuser: with a password that the page tells, so on a developer's machine only."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend

__all__ = ["ADMIN", "DemoBackend", "make_admin"]

ADMIN = "admin"
"""Its name and its password."""


class DemoBackend(ModelBackend):
    """Django's own, which knows the demo's superuser with DEBUG only: neither by a password nor by a session."""

    def user_can_authenticate(self, user):
        return super().user_can_authenticate(user) and (settings.DEBUG or user.get_username() != ADMIN)


def make_admin() -> None:
    """See to it that there is one, with DEBUG."""
    if not settings.DEBUG:
        return
    user, is_new = get_user_model().objects.get_or_create(
        username=ADMIN, defaults={"is_staff": True, "is_superuser": True}
    )
    if is_new:
        user.set_password(ADMIN)
        user.save()
