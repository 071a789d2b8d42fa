"""What ``manage.py check`` says about ``within``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db.models import DateTimeField, ExpressionWrapper, F, OuterRef, Q, Subquery, Sum

from tests.test_checks import Case, assert_found, declaring
from tests.testapp.models import Competitor, Duel, Ticket

WEEK = timedelta(days=7)
DUELS = Duel.objects.filter(competitor=OuterRef("pk"), fought_at__within=WEEK).values("competitor")
LATER = ExpressionWrapper(F("joined") + WEEK, output_field=DateTimeField())

DECLARATIONS = [
    declaring(
        "zrank.E051",
        "within in a subquery",
        "within is in a subquery",
        model=Competitor,
        order=("-week",),
        get_queryset=lambda self: Competitor.objects.annotate(
            week=Subquery(DUELS.annotate(week=Sum("points")).values("week"))
        ),
    ),
    declaring(
        "zrank.E051",
        "within of an expression",
        "within compares an expression",
        model=Competitor,
        order=("-points",),
        get_queryset=lambda self: Competitor.objects.annotate(later=LATER).filter(later__within=WEEK),
    ),
    declaring(
        "zrank.E051",
        "within of a part of a column",
        "within compares an expression",
        model=Competitor,
        order=("-points",),
        get_queryset=lambda self: Competitor.objects.filter(joined__date__within=WEEK),
    ),
    declaring(
        "zrank.W011",
        "within without an index",
        "begins with testapp.Ticket.moment",
        model=Ticket,
        order=("real",),
        get_queryset=lambda self: Ticket.objects.filter(Q(moment__within=WEEK)),
    ),
    declaring(
        "zrank.E019",
        "within of a number",
        "Unsupported lookup 'within'",
        model=Competitor,
        order=("-points",),
        get_queryset=lambda self: Competitor.objects.filter(points__within=WEEK),
    ),
]


@pytest.mark.parametrize("case", DECLARATIONS)
def test_what_is_wrong_is_found(case: Case, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_found(case, settings, monkeypatch)
