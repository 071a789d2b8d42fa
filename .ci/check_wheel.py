"""check_wheel.py WHEEL PACKAGE: the wheel holds every file of the package's folder, and nothing else.

A wheel without its scripts or templates installs and imports, and fails at the first request.
"""

import sys
import zipfile
from pathlib import Path, PurePosixPath

wheel, package = Path(sys.argv[1]), Path(sys.argv[2])

names = {PurePosixPath(name) for name in zipfile.ZipFile(wheel).namelist()}
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

print(f"{wheel.name}: {len(shipped)} files of the package")
if complaints:
    sys.exit("\n".join(complaints))
