"""The hooks by which parts attach."""

from __future__ import annotations

from typing import Any

import pytest

from django_zrank import IndexUnavailable
from django_zrank.checks import check_settings
from django_zrank.extension import Fallback, companions, fallback, fallbacks
from django_zrank.queries.counts import Size
from tests.testapp.zrank import PlayerRank

NOWHERE = "redis://127.0.0.1:1/0"


def answer(index: Any, conditions: Any, question: Any, view: Any) -> Any:
    assert (index, conditions, type(question)) == (PlayerRank.instance(), (), Size)
    return 17


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> None:
    for one in (fallbacks, companions):
        for name in list(one):
            monkeypatch.delitem(one, name)


@pytest.mark.usefixtures("without")
class TestFallbacks:
    def test_the_setting_chooses_one(self, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(fallbacks, "oracle", Fallback("tests.test_hooks.answer", "by oracle"))
        settings.ZRANK = {"UNHEALTHY": "oracle"}
        assert not check_settings(None)
        assert PlayerRank.ranking.count() == 17

    def test_one_that_is_not_there(self, settings: Any) -> None:
        settings.ZRANK = {"UNHEALTHY": "database"}
        (error,) = check_settings(None)
        assert error.id == "zrank.E003"
        assert error.msg == "ZRANK['UNHEALTHY'] must be one of 'raise', 'serve_stale', not 'database'."
        assert fallback() is None
        with pytest.raises(IndexUnavailable):
            PlayerRank.ranking.count()
