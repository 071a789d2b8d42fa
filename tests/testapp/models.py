"""Models for every way in which a row can come to be ranked."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class Player(models.Model):
    """The ordinary case."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, null=True, related_name="player")
    name = models.CharField(max_length=40, default="")
    level = models.IntegerField(null=True)
    bio = models.TextField(default="")
    is_active = models.BooleanField(default=True)
    friends = models.ManyToManyField("self")

    def __str__(self) -> str:
        return self.name


class PlayerProxy(Player):
    class Meta:
        proxy = True


class Musician(models.Model):
    """Columns that are called like parameters of the REST API."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, null=True)
    level = models.IntegerField(null=True)
    band = models.CharField(max_length=40, default="")
    page = models.IntegerField(default=1)
    facet_page = models.IntegerField(default=2)
    genre = models.CharField(max_length=40, default="pop", blank=True, choices={"pop": "Pop", "rock": "Rock"})


class Person(models.Model):
    """A parent by multi-table inheritance, with the ranked column."""

    points = models.IntegerField(default=0)


class Employee(Person):
    """The ranked child of a parent that has the column."""

    title = models.CharField(max_length=40, default="")


class Manager(Employee):
    """A child of what is ranked."""

    reports = models.IntegerField(default=0)


class Club(models.Model):
    is_open = models.BooleanField(default=True)


class Account(models.Model):
    """Ranked by a related row's column, filtered by another's."""

    club = models.ForeignKey(Club, models.SET_NULL, null=True)
    nick = models.CharField(max_length=40, default="")


class Profile(models.Model):
    account = models.OneToOneField(Account, models.CASCADE, related_name="profile")
    points = models.IntegerField(default=0)
    motto = models.CharField(max_length=40, default="")


class Nickname(models.Model):
    """A text primary key."""

    nick = models.CharField(max_length=40, primary_key=True)
    score = models.FloatField(null=True)


class LooseField(models.IntegerField):  # type: ignore[type-arg]
    """Says that it holds 32 bits, and holds 64: a column that somebody altered."""

    def get_internal_type(self) -> str:
        return "BigIntegerField"


class Ticket(models.Model):
    """A UUID primary key, and one column of every type that can be ranked."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    integer = models.BigIntegerField(null=True)
    real = models.FloatField(null=True)
    price = models.DecimalField(max_digits=12, decimal_places=2, null=True)
    flag = models.BooleanField(null=True)
    day = models.DateField(null=True)
    moment = models.DateTimeField(null=True)
    span = models.DurationField(null=True)
    loose = LooseField(null=True)


class Remote(models.Model):
    """Lives in another database."""

    score = models.IntegerField(default=0)


class Team(models.Model):
    """Ranked by several criteria, of every type that has its own bytes."""

    points = models.BigIntegerField(null=True)
    goals = models.IntegerField(default=0)
    wins = models.PositiveBigIntegerField(null=True)
    rating = models.FloatField(null=True)
    fee = models.DecimalField(max_digits=18, decimal_places=3, null=True)
    founded = models.DateField(null=True)
    achieved_at = models.DateTimeField(null=True)
    lead = models.DurationField(null=True)
    is_pro = models.BooleanField(default=False)
    club = models.ForeignKey(Club, models.CASCADE, null=True)


class Guild(models.Model):
    slug = models.CharField(max_length=40)


class Tag(models.Model):
    word = models.CharField(max_length=40)


class Competitor(models.Model):
    """Ranked by several criteria, and inside whatever it belongs to."""

    points = models.IntegerField(null=True)
    total = models.BigIntegerField(null=True)
    lost = models.IntegerField(default=0)
    joined = models.DateTimeField(null=True)
    region = models.CharField(max_length=40, null=True)  # noqa: DJ001 - null is a value of a facet too
    platform = models.CharField(max_length=40, default="")
    guild = models.ForeignKey(Guild, models.SET_NULL, null=True)
    tags = models.ManyToManyField(Tag)


class Host(models.Model):
    """A key that PostgreSQL casts to another text than Python does, and rows that most managers hide."""

    address = models.GenericIPAddressField(primary_key=True)
    load = models.IntegerField(null=True)
    zone = models.ForeignKey("Zone", models.SET_NULL, null=True, to_field="gateway")
    site = models.ForeignKey("Zone", models.SET_NULL, null=True, to_field="number", related_name="on_site")
    is_hidden = models.BooleanField(default=False)
    labels = GenericRelation("Label", related_query_name="host")


class Zone(models.Model):
    gateway = models.GenericIPAddressField(unique=True)
    number = models.IntegerField(unique=True, null=True)
    is_up = models.BooleanField(default=True)


class Switch(models.Model):
    """A key of which there are two."""

    is_on = models.BooleanField(primary_key=True)
    load = models.IntegerField(null=True)


class PaddedField(models.CharField):  # type: ignore[type-arg]
    """``char(8)``, of which PostgreSQL fills what is left with blanks."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return f"char({self.max_length})"


class Code(models.Model):
    code = PaddedField(max_length=8, primary_key=True)
    load = models.IntegerField(null=True)


class Label(models.Model):
    """Leads to rows of any model."""

    word = models.CharField(max_length=40)
    content_type = models.ForeignKey("contenttypes.ContentType", models.CASCADE)
    object_id = models.CharField(max_length=40)
    target = GenericForeignKey()


class VisibleManager(models.Manager["Member"]):
    def get_queryset(self) -> models.QuerySet[Member]:
        return super().get_queryset().filter(is_hidden=False)


class Chapter(models.Model):
    name = models.CharField(max_length=40)
    is_hidden = models.BooleanField(default=False)

    objects = models.Manager()
    visible = VisibleManager()

    class Meta:
        base_manager_name = "visible"


class Member(models.Model):
    """Some rows are hidden by the manager that Django follows relations with."""

    points = models.IntegerField(null=True)
    chapter = models.ForeignKey(Chapter, models.CASCADE, null=True)
    tags = models.ManyToManyField(Tag)
    is_hidden = models.BooleanField(default=False)

    objects = models.Manager()
    visible = VisibleManager()

    class Meta:
        base_manager_name = "visible"


class WeekResult(models.Model):
    """Several rows of a user, one for each week."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    week = models.IntegerField()
    points = models.IntegerField()


class Video(models.Model):
    """Write-behind scores, of every kind that may."""

    views = models.IntegerField(default=0, null=True)
    total = models.BigIntegerField(default=0)
    price = models.DecimalField(max_digits=9, decimal_places=2, default=0)
    region = models.CharField(max_length=40, default="")
    is_public = models.BooleanField(default=True)
    seen = models.DateTimeField(null=True, db_index=True)


class Duel(models.Model):
    """Rows of a competitor that annotations aggregate."""

    competitor = models.ForeignKey(Competitor, models.CASCADE, null=True, related_name="duels")
    points = models.IntegerField(default=0)
    fee = models.DecimalField(max_digits=9, decimal_places=2, default=0)
    weight = models.ForeignKey("Weight", models.CASCADE, null=True)
    fought_at = models.DateTimeField(null=True, db_index=True)
    fought_on = models.DateField(null=True, db_index=True)
    motto = models.CharField(max_length=40, default="")


class Weight(models.Model):
    factor = models.IntegerField(default=1)
