"""What ``manage.py check`` says about ``idle``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.test_checks import ANNOTATED, Case, assert_found, declaring
from tests.testapp.models import Ticket

DECLARATIONS = [
    declaring(
        "zrank.E038",
        "an annotation",
        "Wrong.idle: 'boss' is an annotation",
        idle=("boss", timedelta(1)),
        **ANNOTATED,
    ),
    *(
        declaring("zrank.E038", f"idle {idle!r}", f"Wrong.idle: {match}", idle=idle)
        for idle, match in [
            ("name", "expected a column and a timedelta, not 'name'"),
            (("user__last_login",), "expected a column and a timedelta"),
            (("user__last_login", 30), "expected a timedelta above zero, not 30"),
            (("user__last_login", timedelta(0)), "expected a timedelta above zero"),
            (("nowhere", timedelta(1)), "Player has no field named 'nowhere'"),
            (("name", timedelta(1)), "name is not a DateTimeField"),
            (("friends__user__last_login", timedelta(1)), ".*may have several values for one row"),
        ]
    ),
    declaring(
        "zrank.W011",
        "idle without an index",
        "begins with .*Ticket.moment",
        model=Ticket,
        order=("real",),
        idle=("moment", timedelta(1)),
    ),
]


@pytest.mark.parametrize("case", DECLARATIONS)
def test_what_is_wrong_is_found(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(case, settings, monkeypatch)
