"""check_wheel.py WHEEL PACKAGE [REPOSITORY]: check that the wheel holds every file of the package's folder and nothing
else, and that no link on its page of a package index is dead.

A wheel without its scripts or templates installs and imports, and fails at the first request. If the build was given
the address of a REPOSITORY, all URLs and links must lead to files that exist there; without one there must be none.
"""

import re
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path, PurePosixPath

wheel, package, repository = Path(sys.argv[1]), Path(sys.argv[2]), "".join(sys.argv[3:])

archive = zipfile.ZipFile(wheel)
names = {PurePosixPath(name) for name in archive.namelist()}
shipped = {name for name in names if not name.parts[0].endswith(".dist-info")}
expected = {
    PurePosixPath(path.relative_to(package.parent).as_posix())
    for path in package.rglob("*")
    if path.is_file() and "__pycache__" not in path.parts
}

complaints = [f"missing: {name}" for name in sorted(expected - shipped)]
complaints += [f"does not belong there: {name}" for name in sorted(shipped - expected)]
# The comparison finds nothing amiss where the checkout itself lacks them.
if not any(name.suffix == ".lua" for name in shipped):
    complaints.append("no .lua file at all")
if PurePosixPath(package.name, "py.typed") not in shipped:
    complaints.append("no py.typed")

metadata = message_from_bytes(archive.read(next(str(name) for name in names if name.name == "METADATA")))
urls = dict(line.split(", ") for line in metadata.get_all("Project-URL", []))
text = metadata.get_payload(decode=True).decode()
files = f"{repository}/(?:blob|raw|tree)/v{re.escape(metadata['Version'])}/([^#]+)"
links = re.compile(r"\[[^]]*\]\(([^)]*)\)")
readme = Path(package.parent, "README.md").read_text()
elsewhere = [target for target in links.findall(readme) if target.startswith("https:")]
targets = [target for target in links.findall(text) if target not in elsewhere]
complaints += [
    f"leads nowhere: {target}"
    for target in (*targets, *(urls.get(name, "") for name in ("Documentation", "Changelog") if repository))
    if not (repository and (found := re.match(files, target)) and Path(package.parent, found[1]).exists())
]
if set(urls) != ({"Documentation", "Changelog", "Source", "Issues"} if repository else set()):
    complaints.append(f"URLs: {urls}")
if bool(targets) != bool(repository) or len(text) < 0.9 * len(links.sub("", readme)):
    complaints.append("the README is not the project's")

print(f"{wheel.name}: {len(shipped)} files of the package, {len(targets)} links, {len(urls)} URLs")
if complaints:
    sys.exit("\n".join(complaints))
