"""What ``manage.py check`` says about ``write_behind``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.test_checks import ANNOTATED, Case, Ledger, assert_found, declaring
from tests.testapp.models import Account, Employee

DECLARATIONS = [
    *(
        declaring(
            "zrank.E035", f"write_behind {kind!r} of {order}", match, order=order, write_behind=kind, **more
        )
        for kind, order, match, more in [
            ("often", ("-level",), "expected one of 'increment', 'best', 'latest', not 'often'", {}),
            ("best", ("-level", "pk"), "one criterion", {}),
            ("best", ("pk",), "not a plain column of testapp.Player itself", {}),
            ("best", ("-points",), "not a plain column of testapp.Employee itself", {"model": Employee}),
            ("latest", ("-profile__points",), "not a plain column of testapp.Account", {"model": Account}),
            ("latest", ("-exact",), "exact has no fixed number of decimal places", {"model": Ledger}),
            ("latest", ("-boss",), "'boss' is an annotation", ANNOTATED),
            ("latest", ("-is_active",), "is_active is neither an integer nor a decimal", {}),
        ]
    ),
]


@pytest.mark.parametrize("case", DECLARATIONS)
def test_what_is_wrong_is_found(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(case, settings, monkeypatch)
