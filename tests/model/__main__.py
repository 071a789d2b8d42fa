"""Write ``stories.md``, beside this module: ``python -m tests.model``. It takes six minutes."""

from __future__ import annotations

from tests.model.page import PATH, pieces

PATH.write_text("\n".join(pieces()))
