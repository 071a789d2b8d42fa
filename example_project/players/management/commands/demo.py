"""The demo in one command: server, players, index, recommendations, site and API."""

from __future__ import annotations

import json
import logging
from io import StringIO
from time import perf_counter
from typing import Any

from django.conf import settings
from django.core.management import BaseCommand, CommandError, CommandParser, call_command

from arena.server import is_free, running_server
from arena.stage import stage
from players.accounts import ADMIN, make_admin
from players.models import Player
from players.population import match_population
from players.report import as_plain, change_line, scene_lines
from players.showcase import cast_players, change_level, is_complete, is_lost, show

HOST = "127.0.0.1"
STEP = 10
"""Levels that the player in the middle gains in the demo."""


class Command(BaseCommand):
    """Runs the steps of this app's modules and prints their results."""

    help = (
        "Create players, build their index, print recommendations and ranks, and serve the site on localhost."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--players", type=int, default=100_000, help="how many players (default: 100,000)"
        )
        parser.add_argument("--no-serve", action="store_true", help="exit after the tables")
        parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        parser.add_argument("--port", type=int, default=8000, help="the port of the site (default: 8000)")

    def handle(self, *, players: int, no_serve: bool, port: int, **options: Any) -> None:
        self.quiet = options["json"]
        if self.quiet:
            logging.getLogger("django_zrank").setLevel(logging.ERROR)
        if players < 3:
            raise CommandError("--players: at least three players are needed")
        if not no_serve and not is_free(port):
            raise CommandError(f"--port: port {port} is in use; choose another one")
        with running_server() as url:
            self.say(f"Valkey is running at {url}")
            prepared = self.prepare(players)
            self.perform(prepared)
            if not no_serve:
                self.serve(port)

    def say(self, line: str = "") -> None:
        if not self.quiet:
            self.stdout.write(line)

    def prepare(self, players: int) -> dict[str, Any]:
        """Create the database, the players and the index, unless they exist."""
        call_command("migrate", verbosity=0)
        make_admin()
        if not Player.objects.exists():
            self.say(
                f"First start: creating {players:,} players and ranking them (about 20 s for 100,000) ..."
            )
            self.stdout.flush()
        began = perf_counter()
        created, deleted = match_population(players)
        if created or deleted:
            self.say(f"{created:,} players created, {deleted:,} deleted in {perf_counter() - began:.1f} s")
        else:
            self.say(f"{players:,} players exist from the last run")
        rebuilt = bool(created or deleted) or is_lost()
        if not rebuilt:
            self.run("sync_zrank", "player")
            rebuilt = not is_complete()
        if rebuilt:
            self.run("rebuild_zrank", "player", no_progress=self.quiet)
            # The rebuild has read the rows that were marked while the players were created: delete the marks.
            self.run("sync_zrank", "player")
        for name in (
            "atp",
            "atp-age",
        ):  # empty before load_atp, but healthy: nothing for the watcher to repair
            if is_lost(name):
                call_command("rebuild_zrank", name, no_progress=True, stdout=StringIO())
        return {"players": players, "created": created, "deleted": deleted, "rebuilt": rebuilt}

    def run(self, *words: str, **options: Any) -> None:
        """Run a command of django-zrank, with or without its output."""
        call_command(*words, stdout=StringIO() if self.quiet else self.stdout, **options)

    def perform(self, prepared: dict[str, Any]) -> None:
        """Show three players with ten opponents each, and one who levels up."""
        cast = cast_players()
        scenes = [show(role, player) for role, player in cast.items()]
        change = change_level(cast["middle"], by=STEP)
        for scene in scenes:
            for line in ("", *scene_lines(scene)):
                self.say(line)
        self.say()
        self.say(change_line(change))
        if self.quiet:
            self.stdout.write(json.dumps(prepared | as_plain(scenes, change)))
            self.stdout.flush()

    def serve(self, port: int) -> None:
        """Serve the site and the API until Ctrl-C."""
        self.say()
        self.say(f"Arena:  http://{HOST}:{port}/")
        if settings.DEBUG:
            self.say(f"Admin:  http://{HOST}:{port}/admin/  (user {ADMIN}, password {ADMIN})")
        self.say(f"API:    http://{HOST}:{port}/api/  (choose a player in the arena first)")
        self.say("Quit with Ctrl-C.")
        self.stdout.flush()
        # The page may kill the server, which must not lose the index.
        stage.save()
        # The output of runserver would repeat this, or corrupt the JSON.
        with stage.watching():
            call_command("runserver", f"{HOST}:{port}", use_reloader=False, stdout=StringIO())
