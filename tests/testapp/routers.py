from __future__ import annotations

from typing import Any


class RemoteRouter:
    """``Remote`` lives in the database ``other``."""

    def _database(self, model: Any) -> str | None:
        return "other" if model._meta.model_name == "remote" else None

    def db_for_read(self, model: Any, **hints: Any) -> str | None:
        return self._database(model)

    db_for_write = db_for_read

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        return db == "other" if model_name == "remote" else None
