"""Databases that can be killed."""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from django.db import DatabaseError, connection

from tests.torture.strike import Strike

__all__ = ["DATABASES", "Database"]


class Database:
    """The database of a run. This base is SQLite's: a file, with nothing to connect to and nothing to kill."""

    vendor = "sqlite"
    others = ""
    """A query for the numbers of all connections to this database but the one that asks."""

    terminate = ""
    """The statement that ends a connection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"ZRANK_TEST_DATABASE": self.vendor}
        """The variables by which ``tests/settings.py`` finds it."""

    @property
    def strikes(self) -> dict[str, Strike]:
        """The strikes against it, by name."""
        return {}

    def start(self) -> None:
        """Start the server, if it is one that is ours to start."""

    def stop(self) -> None:
        """End the server, if it was started here."""

    def connections(self) -> list[int]:
        """The numbers of all connections to this database but our own."""
        if not self.others:
            return []
        with connection.cursor() as cursor:
            cursor.execute(self.others)
            return sorted(number for (number,) in cursor.fetchall())

    def kill_connection(self, chance: random.Random) -> bool:
        """End somebody's connection. False if there is none."""
        try:
            with connection.cursor() as cursor:
                cursor.execute(self.terminate, [chance.choice(self.connections())])
        except (IndexError, DatabaseError):  # nobody is connected, or not any more
            return False
        finally:
            connection.close()  # a process that is started now must not share it
        return True

    def settle(self) -> None:
        """Wait until the server has noticed that its clients are dead: some of what they asked for is still
        waiting for a lock, and may yet be committed."""
        while self.connections():
            time.sleep(0.02)
        connection.close()


class DatabaseServer(Database):
    """A server: the one that the environment names for the suite, or a private one in the folder."""

    account: str
    """The system's user that a server started by root runs as."""

    user: str
    """The database's user."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.private = (
            os.environ.get("ZRANK_TEST_DATABASE") != self.vendor
            or "ZRANK_TEST_DATABASE_HOST" not in os.environ
        )
        self.process: subprocess.Popen[bytes] | None = None
        if self.private:
            self.environment |= {
                "ZRANK_TEST_DATABASE_HOST": str(self.socket),
                "ZRANK_TEST_DATABASE_PORT": "",
                "ZRANK_TEST_DATABASE_USER": self.user,
                "ZRANK_TEST_DATABASE_PASSWORD": "",
            }

    @property
    def socket(self) -> Path:
        raise NotImplementedError

    @property
    def strikes(self) -> dict[str, Strike]:
        return {"connection": self.kill_connection, **({"database": self.crash} if self.private else {})}

    def crash(self, chance: random.Random) -> bool:
        """End the server as a crash would, and start it again."""
        raise NotImplementedError

    def run(self, command: str) -> None:
        """Run a program of the server, as the user it wants; CalledProcessError, with what it said."""
        subprocess.run(command.split(), check=True, capture_output=True, cwd=self.folder, **self.identity())

    def identity(self) -> dict[str, Any]:
        """The environment and the account of the server's programs: not root, and no clock but the system's."""
        environment = {name: value for name, value in os.environ.items() if name != "TZ"}  # Django sets it
        if os.geteuid():
            return {"env": environment}
        os.chown(self.folder, pwd.getpwnam(self.account).pw_uid, -1)
        return {"env": environment, "user": self.account, "group": self.account}


class PostgreSQL(DatabaseServer):
    vendor, account, user = "postgresql", "postgres", "postgres"
    others = (
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    terminate = "SELECT pg_terminate_backend(%s)"

    @property
    def socket(self) -> Path:
        return self.folder

    def start(self) -> None:
        if self.private:
            self.run(
                f"{self.program('initdb')} -D {self.folder}/cluster -U postgres -A trust -E UTF8 --no-sync"
            )
            self.up()

    def up(self, further: str = "") -> None:
        # What is committed survives a crash of the server; of the machine it need not.
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off -c max_connections=200"
        options += further
        command = (
            f"{self.program('pg_ctl')} -D {self.folder}/cluster -l {self.folder}/log -w -s start -o".split()
        )
        subprocess.run([*command, options], check=True, cwd=self.folder, **self.identity())

    def crash(self, chance: random.Random) -> bool:
        self.stop()
        self.up()
        return True

    def stop(self) -> None:
        if self.private:  # by SIGQUIT to every process of it: no checkpoint, recovery at the next start
            self.run(f"{self.program('pg_ctl')} -D {self.folder}/cluster -m immediate -w -s stop")

    @staticmethod
    def program(name: str) -> str:
        """Debian keeps the server's programs off the PATH."""
        found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
        return str(found[-1]) if found else str(shutil.which(name))


class MariaDB(DatabaseServer):
    vendor, account, user = "mariadb", "mysql", "root"
    others = "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    terminate = "KILL CONNECTION %s"

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    def start(self) -> None:
        if self.private:
            self.run(
                f"mariadb-install-db --no-defaults --datadir={self.folder}/server --skip-test-db"
                " --auth-root-authentication-method=normal"
            )
            self.up()

    def up(self) -> None:
        # What is committed survives a crash of the server; of the machine it need not.
        options = (
            f"--no-defaults --datadir={self.folder}/server --socket={self.socket} --skip-networking --skip-log-bin"
            f" --innodb-flush-log-at-trx-commit=2 --character-set-server=utf8mb4 --log-error={self.folder}/log"
            " --innodb-lock-wait-timeout=10"
        )
        self.process = subprocess.Popen(
            ["/usr/sbin/mariadbd", *options.split()], stderr=subprocess.DEVNULL, **self.identity()
        )
        deadline = time.monotonic() + 60
        while self.ping():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError(f"MariaDB does not answer: {self.folder}/log")
            time.sleep(0.05)

    def ping(self) -> int:
        command = f"mariadb-admin --no-defaults --socket={self.socket} --user=root ping"
        return subprocess.run(command.split(), capture_output=True).returncode

    def forbid_writes(self, chance: random.Random) -> bool:
        """Let it be a primary that is to become a replica: drains refuse it, and go on when it is one again."""
        try:
            with connection.cursor() as cursor:
                cursor.execute("SET GLOBAL read_only = 1")
                time.sleep(chance.random())
                cursor.execute("SET GLOBAL read_only = 0")
        except DatabaseError:
            return False
        finally:
            connection.close()
        return True

    @property
    def strikes(self) -> dict[str, Strike]:
        return {**super().strikes, **({"read-only": self.forbid_writes} if self.private else {})}

    def crash(self, chance: random.Random) -> bool:
        self.stop(signal.SIGKILL)
        self.up()
        return True

    def stop(self, by: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(by)
            self.process.wait()
            self.process = None


DATABASES: dict[str, type[Database]] = {each.vendor: each for each in (Database, PostgreSQL, MariaDB)}
