"""The admin: its pages, who may see and request what, the column of ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from django_zrank.admin import RankedAdminMixin
from django_zrank.admin.histograms import BARS, draw_histogram
from django_zrank.models import Generation, Job, Mark
from django_zrank.registry import registry
from django_zrank.sync.jobs import jobs_of
from django_zrank.testing import sync_now
from tests.links import Link
from tests.testapp.models import Competitor, Nickname, Player, Ticket
from tests.testapp.zrank import (
    ByDay,
    ByMoment,
    ByPrice,
    CompetitorRank,
    NicknameRank,
    PlayerAscending,
    PlayerRank,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("zrank")]

PLAYER = PlayerRank.instance()
LIST = "/admin/zrank/ranking/"
PAGE = f"{LIST}player/change/"
JOBS = f"{LIST}player/jobs/"
