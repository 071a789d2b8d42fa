"""Every way to change a row, by processes that do nothing else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, MutableSequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, IntegrityError, InterfaceError, connection, transaction
from django.db.models import F

from django_zrank.testing import disable_sync
from tests.testapp.models import (
    Account,
    Club,
    Competitor,
    Employee,
    Guild,
    Manager,
    Nickname,
    Person,
    Player,
    Profile,
    Tag,
)
from tests.torture.pace import pause

__all__ = ["Writer", "populate"]

BETWEEN: Final[Any] = Competitor.tags.through

PLAYERS: Final = 400
EMPLOYEES: Final = 200
ACCOUNTS: Final = 200
CLUBS: Final = 12
NICKNAMES: Final = 200
COMPETITORS: Final = 150
GUILDS: Final = 6
TAGS: Final = 6
REGIONS: Final = (None, "kantou", "kansai", "a,b:c")
JOINED: Final = (None, *(datetime(2026, 11, 21, 12, minute, tzinfo=UTC) for minute in range(4)))
SCORES: Final = 1_000_000


def populate() -> None:
    """The rows that a run begins with."""
    Player.objects.bulk_create(Player(pk=pk, level=pk) for pk in range(1, PLAYERS + 1))
    for pk in range(1, EMPLOYEES + 1):
        Employee.objects.create(pk=pk, points=pk)
    Club.objects.bulk_create(Club(pk=pk) for pk in range(1, CLUBS + 1))
    Account.objects.bulk_create(Account(pk=pk, club_id=1 + pk % CLUBS) for pk in range(1, ACCOUNTS + 1))
    Profile.objects.bulk_create(Profile(pk=pk, account_id=pk, points=pk) for pk in range(1, ACCOUNTS + 1))
    Nickname.objects.bulk_create(Nickname(nick=f"n{pk}", score=pk) for pk in range(1, NICKNAMES + 1))
    Guild.objects.bulk_create(Guild(pk=pk, slug=f"g{pk}") for pk in range(1, GUILDS + 1))
    Tag.objects.bulk_create(Tag(pk=pk, word=f"t{pk}") for pk in range(1, TAGS + 1))
    Competitor.objects.bulk_create(
        Competitor(pk=pk, points=pk % 9, guild_id=1 + pk % GUILDS) for pk in range(1, COMPETITORS + 1)
    )
    BETWEEN.objects.bulk_create(
        BETWEEN(competitor_id=pk, tag_id=1 + (pk + n) % TAGS)
        for pk in range(1, COMPETITORS + 1)
        for n in (1, 3)
    )


class Undone(Exception):
    """Rolls a transaction back."""


class Writer:
    """Writes until it is killed, or ``enough.value`` is true.

    ``count``: rows written, transactions committed, transactions undone or refused. Some push nothing, as another
    program would: what they write is left to the drainers.
    """

    def __init__(self, seed: float, count: MutableSequence[int], enough: Any) -> None:
        self.chance = random.Random(seed)
        self.count = count
        self.enough = enough

    def run(self) -> None:
        with disable_sync() if self.chance.random() < 0.3 else nullcontext():
            self.write()

    def write(self) -> None:
        operations = self.operations()
        weights = list(operations.values())
        while not self.enough.value:
            operation = self.chance.choices(list(operations), weights)[0]
            try:
                rows = operation()
            except (Undone, ObjectDoesNotExist, IntegrityError):
                self.count[2] += 1
            except (
                DatabaseError,
                InterfaceError,
                connection.Database.Error,
            ):  # Django lets some of these through
                self.count[2] += 1
                connection.close_if_unusable_or_obsolete()
                time.sleep(0.05)  # the server may be down
            else:
                self.count[0] += rows
                self.count[1] += bool(rows)

    def operations(self) -> dict[Callable[[], int], float]:
        """Each with how often it is done. They return how many rows they have written."""
        everywhere: dict[Callable[[], int], float] = {
            self.save: 8,
            self.save_field: 8,
            self.in_transaction: 6,
            self.with_savepoints: 4,
            self.leave_or_rejoin: 4,
            self.bulk_create: 2,
            self.bulk_create_or_ignore: 2,
            self.bulk_create_or_update: 3,
            self.bulk_update: 3,
            self.update_by_expression: 4,
            self.raw: 5,
            self.delete: 2,
            self.delete_queryset: 1,
            self.recreate: 5,
            self.cascade: 2,
            self.give_owner: 2,
            self.inherited_save: 3,
            self.inherited_update: 3,
            self.inherited_delete: 1,
            self.inherited_recreate: 2,
            self.profile_save: 4,
            self.profile_raw: 3,
            self.profile_delete: 1,
            self.profile_moves: 1,
            self.account_recreate: 3,
            self.account_moves: 3,
            self.account_delete: 1,
            self.club_opens_or_closes: 2,
            self.club_delete: 1,
            self.club_recreate: 1,
            self.nickname_save: 3,
            self.nickname_renamed: 2,
            self.nickname_upsert: 3,
            self.competitor_save: 6,
            self.competitor_moves: 6,
            self.competitor_in_transaction: 4,
            self.competitor_delete: 1,
            self.competitor_recreate: 3,
            self.tags_set: 5,
            self.tag_added_or_removed: 5,
            self.tags_by_bulk: 3,
            self.tag_renamed: 1,
            self.tag_delete: 0.3,
            self.tag_recreate: 1,
            self.guild_renamed: 2,
            self.guild_delete: 0.5,
            self.guild_recreate: 1,
        }
        return everywhere | ({self.truncate: 1} if connection.vendor == "postgresql" else {})

    # Chance

    def pk(self, size: int) -> int:
        """A row. All writers hammer a few at a time, and then leave them alone, with whatever is in Redis."""
        if self.chance.random() < 0.1:
            return self.chance.randint(1, size)
        return 1 + (int(time.time() * 4) * 4 + self.chance.randrange(4)) % size

    def pks(self, size: int, most: int = 6) -> list[int]:
        """A few rows, in order: deadlocks are not what is looked for."""
        return sorted({self.pk(size) for _ in range(self.chance.randint(1, most))})

    def score(self) -> int | None:
        """A new score; sometimes none."""
        return self.chance.randrange(SCORES) if self.chance.random() < 0.95 else None

    def perhaps_undo(self, chance: float = 0.3) -> None:
        pause(self.chance, often=0.005)  # seldom: locks are held
        if self.chance.random() < chance:
            raise Undone

    def execute(self, statement: str, *parameters: Any) -> int:
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return max(cursor.rowcount, 0)

    # Players: a filter, two indexes

    def save(self) -> int:
        player = Player.objects.get(pk=self.pk(PLAYERS))
        player.level = self.score()
        player.save()
        return 1

    def save_field(self) -> int:
        player = Player.objects.only("pk").get(pk=self.pk(PLAYERS))
        player.level = self.score()
        player.save(update_fields=["level"])
        return 1

    def in_transaction(self) -> int:
        with transaction.atomic():
            rows = Player.objects.filter(pk__in=self.pks(PLAYERS)).order_by("pk").select_for_update()
            for player in rows:
                player.level = self.score()
                player.save()
            self.perhaps_undo()
        return len(rows)

    def with_savepoints(self) -> int:
        written = 0
        with transaction.atomic():
            for pk in self.pks(PLAYERS):
                try:
                    with transaction.atomic():
                        player = Player.objects.get(pk=pk)
                        player.level = self.score()
                        player.save()
                        Player.objects.filter(pk=pk).update(is_active=self.chance.random() < 0.8)
                        self.perhaps_undo(0.5)
                except (Undone, Player.DoesNotExist):
                    continue
                written += 2
            self.perhaps_undo(0.1)
        return written

    def leave_or_rejoin(self) -> int:
        return Player.objects.filter(pk__in=self.pks(PLAYERS)).update(is_active=self.chance.random() < 0.6)

    def new_players(self) -> list[Player]:
        return [Player(pk=pk, level=self.score()) for pk in self.pks(PLAYERS)]

    def bulk_create(self) -> int:
        return len(Player.objects.bulk_create(self.new_players()))

    def bulk_create_or_ignore(self) -> int:
        return len(Player.objects.bulk_create(self.new_players(), ignore_conflicts=True))

    def bulk_create_or_update(self) -> int:
        named = connection.features.supports_update_conflicts_with_target
        players = Player.objects.bulk_create(
            self.new_players(),
            update_conflicts=True,
            update_fields=["level"],
            unique_fields=["id"] if named else None,
        )
        return len(players)

    def bulk_update(self) -> int:
        players = list(Player.objects.filter(pk__in=self.pks(PLAYERS, 12)).order_by("pk"))
        for player in players:
            player.level, player.is_active = self.score(), self.chance.random() < 0.8
        return Player.objects.bulk_update(players, ["level", "is_active"]) if players else 0

    def update_by_expression(self) -> int:
        return Player.objects.filter(pk__in=self.pks(PLAYERS, 12)).update(level=F("level") + 1)

    def raw(self) -> int:
        return self.execute(
            "UPDATE testapp_player SET level = %s WHERE id = %s", self.score(), self.pk(PLAYERS)
        )

    def delete(self) -> int:
        return Player.objects.get(pk=self.pk(PLAYERS)).delete()[0]

    def delete_queryset(self) -> int:
        return Player.objects.filter(pk__in=self.pks(PLAYERS)).delete()[0]

    def recreate(self) -> int:
        Player(pk=self.pk(PLAYERS), level=self.score()).save(force_insert=True)
        return 1

    def give_owner(self) -> int:
        pk = self.pk(PLAYERS)
        user, _ = User.objects.get_or_create(pk=pk, defaults={"username": f"user {pk}"})
        return Player.objects.filter(pk=pk).update(user=user)

    def cascade(self) -> int:
        return User.objects.filter(pk__in=self.pks(PLAYERS)).delete()[0]

    # Employees: the column is the parent's

    def inherited_save(self) -> int:
        employee = Employee.objects.get(pk=self.pk(EMPLOYEES))
        employee.points = self.chance.randrange(SCORES)
        employee.save()
        return 2

    def inherited_update(self) -> int:
        model = self.chance.choice([Employee, Person, Manager])
        return model.objects.filter(pk__in=self.pks(EMPLOYEES)).update(points=self.chance.randrange(SCORES))

    def inherited_delete(self) -> int:
        model = self.chance.choice([Employee, Person, Manager])
        return model.objects.filter(pk=self.pk(EMPLOYEES)).delete()[0]

    def inherited_recreate(self) -> int:
        model = self.chance.choice([Employee, Person, Manager])
        model(pk=self.pk(EMPLOYEES), points=self.chance.randrange(SCORES)).save()
        return 2

    # Accounts: ranked by a row of another table, filtered by one of a third

    def profile_save(self) -> int:
        profile = Profile.objects.get(account=self.pk(ACCOUNTS))
        profile.points = self.chance.randrange(SCORES)
        profile.save()
        return 1

    def profile_raw(self) -> int:
        return self.execute(
            "UPDATE testapp_profile SET points = points + %s WHERE account_id IN (%s, %s)",
            self.chance.randrange(SCORES),
            *sorted([self.pk(ACCOUNTS), self.pk(ACCOUNTS)]),
        )

    def profile_delete(self) -> int:
        return Profile.objects.filter(account=self.pk(ACCOUNTS)).delete()[0]

    def profile_moves(self) -> int:
        return Profile.objects.filter(account=self.pk(ACCOUNTS)).update(account=self.pk(ACCOUNTS))

    def account_recreate(self) -> int:
        pk = self.pk(ACCOUNTS)
        with transaction.atomic():
            account, _ = Account.objects.get_or_create(pk=pk, defaults={"club_id": self.pk(CLUBS)})
            self.perhaps_undo(0.1)
            Profile.objects.update_or_create(
                account=account, defaults={"points": self.chance.randrange(SCORES)}
            )
            self.perhaps_undo(0.1)
        return 2

    def account_moves(self) -> int:
        with transaction.atomic():
            moved = Account.objects.filter(pk__in=self.pks(ACCOUNTS)).update(
                club_id=self.chance.choice([None, *range(1, CLUBS + 1)])
            )
            self.perhaps_undo()
        return moved

    def account_delete(self) -> int:
        return Account.objects.filter(pk=self.pk(ACCOUNTS)).delete()[0]

    def club_opens_or_closes(self) -> int:
        with transaction.atomic():
            clubs = Club.objects.filter(pk=self.pk(CLUBS)).update(is_open=self.chance.random() < 0.6)
            self.perhaps_undo(0.2)
        return clubs

    def club_delete(self) -> int:
        return Club.objects.filter(pk=self.pk(CLUBS)).delete()[0]

    def club_recreate(self) -> int:
        Club(pk=self.pk(CLUBS), is_open=self.chance.random() < 0.6).save()
        return 1

    # Nicknames: the key is text, and may change

    def nickname(self) -> str:
        return f"n{self.pk(NICKNAMES)}"

    def nickname_save(self) -> int:
        Nickname(nick=self.nickname(), score=self.score()).save()
        return 1

    def nickname_renamed(self) -> int:
        # To the same with other capitals, too: which is equal, by MariaDB's collation.
        return self.execute(
            "UPDATE testapp_nickname SET nick = %s, score = %s WHERE nick = %s",
            self.chance.choice([self.nickname(), self.nickname().upper()]),
            self.score(),
            self.chance.choice([self.nickname(), self.nickname().upper()]),
        )

    def nickname_upsert(self) -> int:
        verb, conflict = "REPLACE", ""
        if connection.vendor == "postgresql":
            verb, conflict = "INSERT", "ON CONFLICT (nick) DO UPDATE SET score = excluded.score"
        statement = f"{verb} INTO testapp_nickname (nick, score) VALUES (%s, %s), (%s, %s) {conflict}"
        return self.execute(statement, "n0", self.score(), self.nickname(), self.score())

    # Competitors: two criteria, facets of their own columns, of a guild's, of tags, and of several together

    def fresh(self) -> dict[str, Any]:
        """Values for a competitor. Few points: they are often equal."""
        return {
            "points": self.chance.choice([None, *range(9)]),
            "joined": self.chance.choice(JOINED),
            "region": self.chance.choice(REGIONS),
            "platform": self.chance.choice(["pc", "phone"]),
        }

    def competitor_save(self) -> int:
        competitor = Competitor.objects.get(pk=self.pk(COMPETITORS))
        for name, value in self.fresh().items():
            setattr(competitor, name, value)
        competitor.save()
        return 1

    def competitor_moves(self) -> int:
        name = self.chance.choice(["region", "platform", "joined", "guild_id"])
        value = self.chance.randint(1, GUILDS) if name == "guild_id" else self.fresh()[name]
        return Competitor.objects.filter(pk__in=self.pks(COMPETITORS)).update(**{name: value})

    def competitor_in_transaction(self) -> int:
        with transaction.atomic():
            competitor = Competitor.objects.select_for_update().get(pk=self.pk(COMPETITORS))
            competitor.region = self.chance.choice(REGIONS)
            competitor.save(update_fields=["region"])
            self.perhaps_undo(0.1)
            competitor.tags.set(self.pks(TAGS, 3))
            self.perhaps_undo()
        return 3

    def competitor_delete(self) -> int:
        return Competitor.objects.filter(pk__in=self.pks(COMPETITORS, 3)).delete()[0]

    def competitor_recreate(self) -> int:
        with transaction.atomic():
            competitor = Competitor.objects.create(pk=self.pk(COMPETITORS), **self.fresh())
            competitor.tags.set(self.pks(TAGS, 3))
            self.perhaps_undo(0.1)
        return 3

    def tags_set(self) -> int:
        Competitor.objects.get(pk=self.pk(COMPETITORS)).tags.set(self.pks(TAGS, 4))
        return 3

    def tag_added_or_removed(self) -> int:
        members = Tag.objects.get(pk=self.pk(TAGS)).competitor_set
        others = Competitor.objects.filter(pk__in=self.pks(COMPETITORS, 4))
        (members.add if self.chance.random() < 0.6 else members.remove)(*others)
        return 2

    def tags_by_bulk(self) -> int:
        rows = BETWEEN.objects.filter(competitor_id__in=self.pks(COMPETITORS))
        dice = self.chance.random()
        if dice < 0.3:
            return rows.delete()[0]
        if dice < 0.5:
            return rows.filter(tag_id=self.pk(TAGS)).update(competitor_id=self.pk(COMPETITORS))
        if dice < 0.7:
            return rows.filter(tag_id=self.pk(TAGS)).update(tag_id=self.pk(TAGS))
        pairs = [BETWEEN(competitor_id=pk, tag_id=self.pk(TAGS)) for pk in self.pks(COMPETITORS, 3)]
        return len(BETWEEN.objects.bulk_create(pairs, ignore_conflicts=True))

    def tag_renamed(self) -> int:
        return Tag.objects.filter(pk=self.pk(TAGS)).update(word=f"t{self.pk(9)}")

    def tag_delete(self) -> int:
        return Tag.objects.filter(pk=self.pk(TAGS)).delete()[0]

    def tag_recreate(self) -> int:
        Tag(pk=self.pk(TAGS), word=f"t{self.pk(9)}").save()
        return 1

    def guild_renamed(self) -> int:
        guild = Guild.objects.get(pk=self.pk(GUILDS))
        with transaction.atomic():
            guild.slug = f"g{self.pk(9)}"
            guild.save()
            self.perhaps_undo(0.2)
        return 1

    def guild_delete(self) -> int:
        return Guild.objects.filter(pk=self.pk(GUILDS)).delete()[0]

    def guild_recreate(self) -> int:
        Guild(pk=self.pk(GUILDS), slug=f"g{self.pk(9)}").save()
        return 1

    def truncate(self) -> int:
        with transaction.atomic():
            if self.chance.random() < 0.95:
                raise Undone
            self.execute("TRUNCATE testapp_nickname")
        return 1
