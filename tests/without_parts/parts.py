"""The parts: optional features that can be deleted, with all that belongs to each."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import django_zrank

__all__ = ["PARTS", "ROOT", "Part", "delete", "with_dependents"]

ROOT: Final = Path(__file__).parents[2]

_PACKAGE: Final = Path(django_zrank.__file__).parent
"""The package that is tested, which may be installed elsewhere."""


class Part(NamedTuple):
    """A part of the package."""

    files: tuple[str, ...]
    """Its files and folders. Those in ``tests`` may belong to several parts."""

    names: str
    """A regular expression of what no code of the kernel may name."""

    lines: tuple[tuple[str, str], ...] = ()
    """Lines in files of the kernel: (file, text by which exactly one line is found)."""

    needs: tuple[str, ...] = ()
    """Other parts that it calls: it is deleted with them."""

    runs_tests: bool = False
    """True if the kernel's tests run on it, so that they can't run without it."""

    @property
    def is_there(self) -> bool:
        """Return True if it has not been deleted."""
        return (_PACKAGE.parent / self.files[0]).exists()


_INDEX: Final = "django_zrank/index.py"
_RANKING: Final = "django_zrank/ranking.py"
_SCORES: Final = "django_zrank/scores.py"

PARTS: Final = {
    "rest_framework": Part(
        (
            "django_zrank/rest_framework",
            "tests/rest_framework",
            "tests/outside/test_installed_apps.py",
            "tests/outside/test_rest.py",
            "tests/parts/shown/test_rest.py",
            "tests/test_kinds.py",
            "tests/parts/shards/test_edges.py",
            "tests/typed_api.py",
        ),
        r"rest_framework|\bREST\b",
        (("tests/urls.py", "django_zrank.rest_framework.urls"),),
        needs=("combined", "statistics"),
    ),
    "admin": Part(
        (
            "django_zrank/admin",
            "django_zrank/templates/admin",
            "django_zrank/static/django_zrank",
            "tests/outside/test_installed_apps.py",
            "tests/test_jobs.py",
            "tests/test_admin.py",
            "tests/parts/shards/test_edges.py",
            "tests/testapp/admin.py",
        ),
        r"\b[Aa]dmin\b|\b[Jj]obs?\b",
        ((_INDEX, 'companions["django.contrib.admin"]'),),
    ),
    "metrics": Part(
        ("django_zrank/metrics.py", "tests/test_metrics.py", "tests/parts/shards/test_edges.py"),
        r"\bmetrics\b|prometheus|\bCollector\b",
    ),
    "sql": Part(
        (
            "django_zrank/sql",
            "tests/test_database.py",
            "tests/test_database_reading.py",
            "tests/test_dealing.py",
            "tests/test_kinds.py",
        ),
        r"zrank\.sql\b|by_sql|by SQL|database_timeout",
        ((_INDEX, 'fallbacks["database"]'), (_INDEX, 'settings["sql"]')),
    ),
    "cluster": Part(
        ("django_zrank/cluster", "tests/test_cluster.py", "tests/parts/shards/test_cluster.py"),
        r"(?<!Galera )[Cc]luster|\b(Ask|Moved|TryAgain|SlotNotCovered)Error",
    ),
    "replicas": Part(
        ("django_zrank/replicas", "tests/parts/shown/test_replicas.py", "tests/test_replicas.py"),
        r"\b[Rr]eplicas?\b|[Rr]eplica_|Replicas?\b",
        ((_INDEX, 'sources["replica"]'), (_INDEX, 'settings["replicas"]')),
    ),
    "combined": Part(
        (
            "django_zrank/combined",
            "tests/combined",
            "tests/outside/test_queue.py",
            "tests/test_candidates.py",
            "tests/test_ceiling_of_reads.py",
        ),
        r"zrank\.combined\b|CombinedView|\b(CombinedFilter|Clause)\b|[Cc]ombined_filters?_|make_combined|deal_tested|gathered"
        r"|max_scan|max_combined_filter|filter_timeout",
        (
            (_INDEX, "combined_filters.append"),
            (_INDEX, 'settings["combined"]'),
            (_INDEX, 'extensions["combined"]'),
        ),
    ),
    "dense": Part(
        ("django_zrank/dense", "tests/parts/dense"),
        r"\b[Dd]ense\b|DenseRank",
        ((_INDEX, 'methods["dense"]'),),
    ),
    "groups": Part(
        (
            "django_zrank/groups",
            "tests/combined/test_making.py",
            "tests/combined/test_uniformity_of_filters.py",
            "tests/outside/test_clients.py",
            "tests/outside/test_connections.py",
            "tests/outside/test_erase.py",
            "tests/outside/test_missing_keys.py",
            "tests/outside/test_queue.py",
            "tests/outside/test_refused_commands.py",
            "tests/parts/groups",
            "tests/sync/test_erase.py",
            "tests/test_ceiling_of_reads.py",
            "tests/test_projects.py",
            "tests/typed_api.py",
        ),
        r"zrank\.groups\b|\bGroup(ing)?\b|[Cc]laim|(change|count|leave|read)_group|group_counts",
        (
            (_INDEX, "import Grouping"),
            (_INDEX, "    Grouping[Member],"),
            (_INDEX, 'extensions["group_counts"]'),
        ),
    ),
    "erase": Part(
        (
            "django_zrank/erase",
            "django_zrank/management/commands/erase_zrank.py",
            "tests/sync/test_erase.py",
            "tests/outside/test_erase.py",
        ),
        r"\b[Ee]ras|StillRanked",
        ((_INDEX, "import Erasing"), (_INDEX, "    Erasing,")),
    ),
    "statistics": Part(
        ("django_zrank/statistics", "tests/test_statistics.py"),
        r"\b([Pp]ercentile|[Hh]istogram|tier|a?snapshot|a?[Ss]tandings?|Bin|Statistics)\b",
        ((_RANKING, "import Statistics"), (_RANKING, "    Statistics[Member],")),
    ),
    "shards": Part(
        (
            "django_zrank/shards",
            "tests/parts/shards",
            "tests/parts/shown/test_replicas.py",
            "tests/parts/shown/test_shown.py",
            "tests/parts/write_behind/test_scores_releases.py",
            "tests/parts/write_behind/test_shards.py",
            "tests/sync/test_erase.py",
            "tests/test_rows.py",
        ),
        r"\b[Ss]hard(s|ed|ing)?\b|[Ss]harded|_shards?\b",
        (
            (_INDEX, "import ShardedIndex"),
            (_INDEX, "    ShardedIndex[Member],"),
            (_INDEX, 'extensions["shards"]'),
        ),
    ),
    "write_behind": Part(
        (
            "django_zrank/write_behind",
            "tests/model/broken.py",
            "tests/model/test_code.py",
            "tests/model/test_guards.py",
            "tests/model/test_model.py",
            "tests/outside/test_erase.py",
            "tests/outside/test_missing_keys.py",
            "tests/outside/test_refused_commands.py",
            "tests/outside/test_rest.py",
            "tests/outside/test_scores.py",
            "tests/parts/idle/test_changes.py",
            "tests/parts/write_behind",
            "tests/rest_framework/test_scores.py",
            "tests/sync/test_erase.py",
            "tests/typed_api.py",
        ),
        r"write_?behind|\b[Ff]lush(ed|es)?\b|\bcarried\b|noted_rule|\bincrement\b",
        (
            (_INDEX, "import WriteBehindIndex"),
            (_INDEX, "    WriteBehindIndex[Member],"),
            (_INDEX, 'extensions["write_behind"]'),
            (_INDEX, 'settings["write_behind"]'),
            (_SCORES, "import Changing"),
            (_SCORES, "    Changing,"),
        ),
    ),
    "idle": Part(
        (
            "django_zrank/idle",
            "tests/outside/test_clock.py",
            "tests/outside/test_erase.py",
            "tests/outside/test_missing_keys.py",
            "tests/outside/test_refused_commands.py",
            "tests/parts/idle",
            "tests/parts/write_behind/test_scores_states.py",
            "tests/sync/test_erase.py",
            "tests/typed_api.py",
        ),
        r"\b[Ii]dle\b|\b[Aa]wake\b|\basleep\b|\ba?[Tt]ouch(ing)?\b|\bseen_field\b",
        (
            (_INDEX, "import IdleIndex"),
            (_INDEX, "    IdleIndex[Member],"),
            (_INDEX, 'extensions["idle"]'),
            (_SCORES, "import Touching"),
            (_SCORES, "    Touching,"),
        ),
        needs=("windows",),
    ),
    "windows": Part(
        ("django_zrank/windows", "tests/parts/windows"),
        r"zrank\.windows\b|within=|\b(Within|windows_of|swept)\b",
        ((_INDEX, "from .windows import lookup"), (_INDEX, 'extensions["windows"]')),
    ),
    "shown": Part(
        ("django_zrank/shown", "tests/parts/shown"),
        r"zrank\.shown\b|\b(get_shown|showing|ShowingIndex|ShownEntry|LateShownEntry)\b",
        (
            (_INDEX, "import ShowingIndex"),
            (_INDEX, "    ShowingIndex[Member],"),
            (_INDEX, 'extensions["shown"]'),
        ),
    ),
    "export": Part(
        ("django_zrank/management/commands/export_zrank.py", "tests/commands/test_export_zrank.py"),
        r"\b[Ee]xport",
        needs=("statistics",),
    ),
    "testing": Part(
        ("django_zrank/testing.py", "django_zrank/pytest_plugin.py", "django_zrank/embedded.py"),
        r"zrank\.testing|pytest_plugin|\bembedded\b|\bEmbedded",
        runs_tests=True,
    ),
}
"""The parts by their names. The first file of each is one of the package."""


def with_dependents(names: Iterable[str]) -> list[str]:
    """Return parts with those that need them."""
    found = {*names}
    return [name for name, part in PARTS.items() if name in found or not found.isdisjoint(part.needs)]


def delete(root: Path, names: Iterable[str]) -> None:
    """Delete parts from a checkout, with those that need them."""
    for name in with_dependents(names):
        part = PARTS[name]
        if not (root / part.files[0]).exists():
            continue
        for file in part.files:
            path = root / file
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)  # another part has taken it away
        for file, text in part.lines:
            path = root / file
            lines = path.read_text().splitlines(keepends=True)
            left = [line for line in lines if text not in line]
            if len(left) != len(lines) - 1:
                raise LookupError(f"{name}: {text!r} is in {len(lines) - len(left)} lines of {file}")
            path.write_text("".join(left))
