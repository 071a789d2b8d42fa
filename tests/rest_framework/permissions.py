"""A permission of the project, in a module that imports the app's."""

from __future__ import annotations

from typing import Any

from django_zrank.rest_framework.permissions import IsOwner


class IsNobody(IsOwner):
    def has_permission(self, request: Any, view: Any) -> bool:
        return False
