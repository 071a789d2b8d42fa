"""Replays half a year of tennis rankings, week by week."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from time import perf_counter
from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser, call_command

from arena.server import running_server
from tennis.atp import Week, compare, load_players, namesakes, play_week, read_weeks
from tennis.windows import QUESTIONS, compare_with_database
from tennis.zrank import AtpAgeRank, AtpRank

SHOWN = 5
"""Disagreements of one week that are spelled out."""


class Command(BaseCommand):
    """Runs the steps of ``tennis/atp.py`` and ``tennis/windows.py`` and prints their results."""

    help = (
        "Load players.csv and replay the weekly tables in rankings.csv of FOLDER as ordinary saves; "
        "after every week, compare the index with the published table, and every ranking with the database. "
        "Exit status 1 if they disagree."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("folder", type=Path, metavar="FOLDER")

    def handle(self, *, folder: Path, **options: Any) -> None:
        with running_server():
            call_command("migrate", verbosity=0)
            try:
                weeks = read_weeks(folder)
                players = load_players(folder, weeks)
            except (OSError, ValueError) as error:
                raise CommandError(str(error)) from error
            self.stdout.write(f"{players:,} players, {len(weeks)} weekly tables")
            for atp_id, people in namesakes(weeks):
                self.stdout.write(f"  id {atp_id} has {people} lines in a table: counted as {people} players")
            for index in (AtpRank, AtpAgeRank):
                call_command("rebuild_zrank", index.name, no_progress=True, stdout=StringIO())
            self.replay(weeks)

    def replay(self, weeks: list[Week]) -> None:
        began, saves, places, agreeing, wrong = perf_counter(), 0, 0, 0, 0
        by_question = dict.fromkeys(QUESTIONS, 0)
        for week in weeks:
            changed = play_week(week)
            compared = compare(week)
            self.stdout.write(
                f"{week.day}  {len(week.places):5,} players  {changed:5,} changed  "
                f"{compared.agreeing:5,} agree"
            )
            for line in compared.disagreements[:SHOWN]:
                self.stdout.write(f"  {line}")
            for name, question in QUESTIONS.items():
                by_window = compare_with_database(question)
                for line in by_window.disagreements[:SHOWN]:
                    self.stdout.write(f"  {name}: {line}")
                by_question[name] += by_window.agreeing
                wrong += len(by_window.disagreements)
            saves += changed
            places += len(week.places)
            agreeing += compared.agreeing
            wrong += len(compared.disagreements)
        self.stdout.write(
            f"{len(weeks)} weeks, {saves:,} saves, {agreeing:,} of {places:,} ranks agree, "
            f"{perf_counter() - began:.1f} s"
        )
        self.stdout.write("compared with the database:")
        for name, right in by_question.items():
            self.stdout.write(f"  {right:,} of {places:,} agree {name}")
        if wrong:
            raise CommandError(
                f"{wrong:,} disagreements of the indexes with the published tables or the database"
            )
