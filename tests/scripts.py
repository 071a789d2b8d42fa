"""The scripts of the package: the kernel's, and those that parts bring."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from itertools import combinations
from pathlib import Path
from typing import Final

import django_zrank
from django_zrank.index import methods
from django_zrank.methods import method_of
from django_zrank.redis import scripts
from django_zrank.redis.scripts import Script

__all__ = ["FOLDERS", "every_script", "preceded_scripts", "variants"]

_ROOT: Final = Path(django_zrank.__file__).parent

FOLDERS: Final = [_ROOT / "lua", *sorted(_ROOT.glob("*/**/lua"))]
"""The folders of scripts, the kernel's first. Each may have libraries in ``lib``."""


def every_script() -> Iterator[Script]:
    """Yield each script that is a public constant of ``redis/scripts.py`` or of a part."""
    modules = [scripts]
    for folder in FOLDERS[1:]:
        name = ".".join(folder.parent.relative_to(_ROOT.parent).parts)
        found = pkgutil.walk_packages([str(folder.parent)], f"{name}.")
        modules += [import_module(name), *(import_module(module.name) for module in found)]
    constants = [(name, one) for module in modules for name, one in vars(module).items()]
    yield from {
        one.name: one for name, one in constants if isinstance(one, Script) and name[0] != "_"
    }.values()


def variants(script: Script) -> list[Script]:
    """Return a script, and what it is with the libraries of each ranking method in place of its own."""
    return list(dict.fromkeys(script.using(method_of(name).package) for name in methods))


def preceded_scripts() -> list[Script]:
    """Return the scripts of the kernel with what parts put before them, as they are sent for indexes that declare one
    or several of these."""
    parts: dict[str, list[str]] = {}
    for folder in FOLDERS[1:]:
        package = ".".join(folder.parent.relative_to(_ROOT.parent).parts)
        for path in sorted(folder.glob("before/*.lua")):
            parts.setdefault(path.stem, []).append(package)
    return [
        scripts.preceded(name, some)
        for name, packages in parts.items()
        for count in range(1, len(packages) + 1)
        for some in combinations(packages, count)
    ]
