from __future__ import annotations

import pytest
from django.core.checks import run_checks

from django_zrank import RankIndex
from django_zrank.methods import methods
from django_zrank.registry import registry
from tests.testapp.models import Player


@pytest.mark.parametrize("is_there", [True, False])
def test_a_declaration_is_refused_where_the_part_is_missing(
    is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_there:
        monkeypatch.delitem(methods, "dense")
    monkeypatch.setattr(registry, "_classes", {})
    attributes = {"model": Player, "order": ("-level",), "ranking_method": "dense"}
    registry.register(type("Levels", (RankIndex,), attributes))
    found = [message for message in run_checks(tags=["zrank"]) if message.id == "zrank.E024"]
    assert len(found) == (not is_there)
    for message in found:
        assert message.msg.endswith(".ranking_method can't be 'dense'.")
        assert message.hint == "Choose one of 'ordinal', 'competition': 1234, 1224."
