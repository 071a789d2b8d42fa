# shellcheck shell=bash
# Sourced by a preparation, with a suite of Debian and what its root has besides Redis and PostgreSQL: the root, with what pip
# has to add, and a copy of the checkout.
suite=$1
further=("${@:2}")
. "$CI_DIR/lane.sh"
preparation
[[ $EUID == 0 ]] || cannot_run "debootstrap and chroot take root"
need debootstrap debootstrap
with_mysqlclient=
if [[ " ${further[*]} " == *" libmariadb-dev "* ]]; then
    # It is built inside, since Debian's own is too old for Django; pip reads its metadata here.
    with_mysqlclient=1
    need pkg-config pkg-config
    need mariadb_config libmariadb-dev
fi

namespaces # debootstrap mounts.
root=$LANE_DIR/root
# From the mirror that apt is configured with. Nothing here has to outlive a power cut.
mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -m 1 -E '/debian/?$' || true)
mkdir -p "$root/etc/dpkg/dpkg.cfg.d"
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
include=(python3-dev gcc libc6-dev pkgconf redis-server postgresql "${further[@]}")
# By the script of sid, which is that of all newer suites: debootstrap need not know their names.
debootstrap --variant=minbase --include="$(IFS=, && echo "${include[*]}")" \
    "$suite" "$root" "$mirror" sid >"$LANE_DIR/debootstrap.log" 2>&1 || {
    tail -n 20 "$LANE_DIR/debootstrap.log"
    cannot_run "debootstrap failed"
}
echo "debootstrap: $SECONDS s"
inside() { env --ignore-environment HOME=/root LC_ALL=C.UTF-8 PATH=/usr/sbin:/usr/bin:/bin chroot "$root" "$@"; }

# pip runs outside, as it is configured there: the root need not know of indexes and certificates.
python=$(inside python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
packages=/usr/local/lib/python$python/dist-packages
python3 - "$CHECKOUT/pyproject.toml" >"$LANE_DIR/requirements.txt" <<'PYTHON'
import sys, tomllib

with open(sys.argv[1], "rb") as file:
    declared = tomllib.load(file)
project, groups = declared["project"], declared["dependency-groups"]
for requirements in (project["dependencies"], *project["optional-dependencies"].values(), groups["postgresql"]):
    print(*(each for each in requirements if not each.startswith(project["name"] + "[")), sep="\n")
PYTHON
python3 -m venv "$LANE_DIR/venv"
"$LANE_DIR/venv/bin/pip" install -q --upgrade pip # An older one resolves for the Python that it runs on.
"$LANE_DIR/venv/bin/pip" install -q --target "$root$packages" --python-version "$python" --only-binary :all: \
    -r "$LANE_DIR/requirements.txt" pip setuptools wheel
"$LANE_DIR/venv/bin/pip" install -q --target "$root/opt/django60" --python-version "$python" --only-binary :all: "django~=6.0.0"
if [[ $with_mysqlclient ]]; then
    mkdir "$root/opt/source"
    "$LANE_DIR/venv/bin/pip" download -qq --dest "$root/opt/source" --no-deps --no-binary :all: "mysqlclient>=2.2"
    inside sh -c 'python3 -m pip install -q --no-index --no-build-isolation --no-deps --break-system-packages \
        --root-user-action=ignore /opt/source/mysqlclient*' >"$LANE_DIR/mysqlclient.log" 2>&1 || {
        tail -n 20 "$LANE_DIR/mysqlclient.log"
        exit 1
    }
fi
mkdir "$root/opt/suite" # The copy of a checkout may have something beside it.
"$CI_DIR/copy_checkout" "$root/opt/suite/checkout"
echo /opt/suite/checkout >"$root$packages/checkout.pth"
