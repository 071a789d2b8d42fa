"""The demo's superuser. The page shows the password, so it exists only on a developer's machine."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.backends import ModelBackend

ADMIN = "admin"
"""The user name and the password."""


class DemoBackend(ModelBackend):
    """Django's backend, except that the demo's superuser can log in, and stay logged in, only with DEBUG."""

    def user_can_authenticate(self, user):
        return super().user_can_authenticate(user) and (settings.DEBUG or user.get_username() != ADMIN)


def make_admin() -> None:
    """Create the superuser if there is none, with DEBUG."""
    if not settings.DEBUG:
        return
    user, is_new = get_user_model().objects.get_or_create(
        username=ADMIN, defaults={"is_staff": True, "is_superuser": True}
    )
    if is_new:
        user.set_password(ADMIN)
        user.save()
