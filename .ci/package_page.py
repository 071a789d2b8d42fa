"""Hatch's hook for the page of a package index: the project's URLs, and a README whose links work there.

The address of the repository is taken from ``ZRANK_REPOSITORY_URL``, or from the variables that CI of GitHub and GitLab
sets. Without it there are no URLs, and links to files become plain text.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^]]*)\]\((?![a-z]+:|#)([^)]*)\)")
"""A link or an image whose target is a file of the repository."""


class PackagePage(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        repository, files = locate()
        tag = f"v{metadata['version']}"

        def rewrite(link: re.Match[str]) -> str:
            kind = "raw" if link[1] else "blob"
            return f"{link[1]}[{link[2]}]({files}/{kind}/{tag}/{link[3]})" if repository else link[2]

        text = LINK.sub(rewrite, Path(self.root, "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = {}
        if repository:
            metadata["urls"] |= {
                "Documentation": f"{files}/tree/{tag}/docs",
                "Changelog": f"{files}/blob/{tag}/CHANGELOG.md",
                "Source": repository,
                "Issues": f"{files}/issues",
            }


def locate() -> tuple[str, str]:
    """The URL of the repository, and the beginning of the URLs of its files; both empty if they are unknown."""
    environment = os.environ
    if url := environment.get("ZRANK_REPOSITORY_URL", "").rstrip("/"):
        return url, url
    if url := environment.get("CI_PROJECT_URL", ""):  # GitLab
        return url, f"{url}/-"
    if name := environment.get("GITHUB_REPOSITORY", ""):
        url = f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{name}"
        return url, url
    return "", ""
