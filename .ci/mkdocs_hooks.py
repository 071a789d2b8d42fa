"""The changelog as a page of the site, with links that lead where they lead on a forge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def on_files(files: Files, *, config: Any) -> Files:
    text = CHANGELOG.read_text().replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=text))
    return files
