"""Rows whose columns lead to members, and whose instances don't tell by which value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db.models import F, QuerySet

from django_zrank import RankIndex
from django_zrank.sync.watch import sync
from tests.sync.mirror import assert_mirrors
from tests.testapp.models import Account, Host, Profile, Zone

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def index(declare: Callable[..., type[RankIndex]]) -> type[RankIndex]:
    """Hosts at sites that are up."""

    def get_queryset(self: RankIndex) -> QuerySet[Host]:
        return Host._base_manager.filter(site__is_up=True)

    found = declare(Host, "-load", get_queryset=get_queryset)
    sync(found)
    return found


def test_a_row_without_the_value_that_others_refer_to_is_deleted(index: type[RankIndex]) -> None:
    zone = Zone.objects.create(gateway="10.0.0.1")
    zone.is_up = False
    zone.save()
    zone.delete()
    sync(index)
    assert_mirrors(index)


@pytest.mark.parametrize("watched", [True, False])
def test_a_value_that_only_the_database_knows(index: type[RankIndex], watched: bool) -> None:
    zone = Zone.objects.create(gateway="10.0.0.1", number=1)
    zone.number = F("number") + 1
    zone.save()
    host = Host._base_manager.create(address="10.0.0.2", load=3, site_id=2)
    host.load = F("load") + 1
    host.save()
    if watched:
        sync(index)
    assert_mirrors(index)
    assert index.ranking.score("10.0.0.2") == 4
    zone.refresh_from_db()
    zone.is_up = False
    zone.save()
    assert_mirrors(index)


def test_a_deferred_row_that_another_process_has_deleted(declare: Callable[..., type[RankIndex]]) -> None:
    """Its ``delete()`` is silent without this app, too."""
    index = declare(Account, "-profile__points")
    sync(index)
    Profile.objects.create(account=Account.objects.create(), points=4)
    profile = Profile.objects.only("pk").get()
    Profile.objects.all()._raw_delete("default")
    assert profile.delete()[0] == 0
    sync(index)
    assert_mirrors(index)


def test_a_deferred_row_is_saved_and_deleted(index: type[RankIndex]) -> None:
    Zone.objects.create(gateway="10.0.0.1", number=1, is_up=False)
    Host._base_manager.create(address="10.0.0.2", load=3, site_id=1)
    zone = Zone.objects.only("is_up").get()
    zone.is_up = True
    zone.save()
    assert index.ranking.score("10.0.0.2") == 3
    Zone.objects.only("pk").get().delete()
    assert "10.0.0.2" not in index.ranking
