# shellcheck shell=bash
# Sourced by every lane: bash .ci/lanes/NAME, started by .ci/run, which sets CI_DIR, RUN, CHECKOUT, LANE_DIR
# and CANNOT_RUN. A lane is a process of its own: what it traps and exports ends with it.
set -euo pipefail

cannot_run() {
    echo "cannot run: $*"
    exit "$CANNOT_RUN"
}

# need COMMAND PACKAGE...: install Debian packages unless the command is there.
need() {
    local command=$1
    shift
    command -v "$command" >/dev/null && return
    command -v apt-get >/dev/null || cannot_run "$command is missing, and there is no apt-get"
    [[ $EUID == 0 ]] || cannot_run "$command is missing: apt-get install $*"
    export DEBIAN_FRONTEND=noninteractive
    exec 9>"$RUN/apt.lock" # What another lane prepares installs, too.
    flock 9
    local apt=(apt-get -qq -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)
    if [[ ! -e $RUN/apt-updated ]]; then
        "${apt[@]}" update 9>&- || cannot_run "apt-get update failed"
        touch "$RUN/apt-updated"
    fi
    echo "installing $*"
    "${apt[@]}" install --no-install-recommends --yes "$@" >"$LANE_DIR/apt.log" 2>&1 9>&- || {
        tail -n 30 "$LANE_DIR/apt.log"
        cannot_run "apt-get install $* failed"
    }
    exec 9>&-
    command -v "$command" >/dev/null || cannot_run "$* installed, but there is no $command"
}

# preparation: note the exit status of the script that calls this, one of .ci/prepare, for prepared().
preparation() {
    trap 'echo "$?" >"$LANE_DIR/prepared.tmp" && mv "$LANE_DIR/prepared.tmp" "$LANE_DIR/prepared"' EXIT
}

# prepared: go on if .ci/prepare/LANE has succeeded, which ran beside the other lanes; else end as it did.
prepared() {
    [[ ! ${IN_NAMESPACES:-} ]] || return 0 # namespaces() begins the script anew
    cat "$LANE_DIR/prepare.log"
    [[ -e $LANE_DIR/prepared ]] || {
        echo "the preparation was killed"
        exit 1
    }
    local status
    status=$(<"$LANE_DIR/prepared")
    ((status == 0)) || exit "$status"
}

# namespaces: run the script that calls this anew, in a mount and a process namespace of its own: however it ends, no process
# runs on, and nothing is mounted where files are removed.
namespaces() {
    if [[ ${IN_NAMESPACES:-} ]]; then
        trap 'exit 143' TERM # The first process of a namespace ignores signals that it doesn't trap.
        return
    fi
    unshare --mount --pid --fork true || cannot_run "unshare is not allowed here"
    IN_NAMESPACES=1 exec unshare --mount --pid --fork --kill-child bash "$0"
}

# venv GROUP...: the virtual environment that the lanes share (VENV), with these dependency groups added.
# The tests lane makes it with the README's command; a lane that runs without that one makes it here.
venv() {
    VENV=$CHECKOUT/.venv
    [[ -x $VENV/bin/pytest ]] || {
        python3 -m venv "$VENV"
        "$VENV/bin/pip" install -q -e "${CHECKOUT}[test]"
    }
    (($#)) || return 0
    # The pip that Python 3.11 brings knows no dependency groups.
    "$VENV/bin/pip" install --help | grep -- --group >/dev/null || "$VENV/bin/pip" install -q --upgrade pip
    (cd "$CHECKOUT" && "$VENV/bin/pip" install -q "${@/#/--group=}")
}

# own_venv ARGUMENT...: make a virtual environment of the lane's own, with what pip is told to install.
own_venv() {
    VENV=$LANE_DIR/venv
    python3 -m venv "$VENV"
    "$VENV/bin/pip" install -q --upgrade pip
    (cd "$CHECKOUT" && "$VENV/bin/pip" install -q "$@")
}

# real_browser: what the tests marked browser need: Debian's Chromium, and one file of axe-core's package, without what that depends on.
real_browser() {
    need chromium chromium
    need chromedriver chromium-driver
    "$VENV/bin/pip" install -q --no-deps --target "$LANE_DIR/axe" axe-playwright-python
    export ZRANK_AXE=$LANE_DIR/axe/axe_playwright_python/axe.min.js ZRANK_REQUIRE_BROWSER=1
}

# suite COMMAND...: run pytest by this command. No test at all is a failure: pytest says so by its exit status 5,
# but is content when every one was skipped.
suite() {
    "$@" | tee "$LANE_DIR/pytest.log"
    grep -qE '[0-9]+ passed' "$LANE_DIR/pytest.log" || {
        echo "no test passed"
        exit 5
    }
}

# Tests of files that run elsewhere, too, which the lane of clusters runs.
CLUSTERS=(--deselect=tests/parts/shards/test_sync.py::TestCluster
    --deselect=tests/parts/shards/test_sync.py::test_a_primary_that_is_replaced_takes_no_mark_away)

# on_database ARGUMENT...: the tests that use a database. Nothing in what is left out here depends on which: the demo has one
# of its own, and the others ask Redis, break it, use the ORM alone, or are orders of the protocol, which no database knows of.
# Clusters are left to the lane of that name. Of each script, one command is refused here, and any in the lane of slow tests.
on_database() {
    local elsewhere=(rest_framework example model test_{admin,asking,cluster,metrics,not_built,recommendations}.py
        test_{replicas,testing,twins}.py parts/shards/test_{cluster,edges}.py commands/test_{export,prune,verify}_zrank.py
        sync/test_{breaker,ceiling,failovers,pieces}.py parts/write_behind/test_scores_{releases,wide}.py
        sync/test_verify_{calls,corruption,facets,pending}.py)
    suite "$VENV/bin/python" -m pytest -m '' -n 2 --touching database "${elsewhere[@]/#/--ignore=tests/}" "${CLUSTERS[@]}" \
        --deselect=tests/outside/test_refused_commands.py::test_a_script_that_is_refused_any_command_loses_nothing "$@"
    # What fences the server, which these two share.
    suite "$VENV/bin/python" -m pytest -m alone tests/sync/test_switchover.py tests/outside/test_databases.py
}

# answers SECONDS COMMAND...: wait until a server's own ping succeeds.
answers() {
    local deadline=$((SECONDS + $1))
    until "${@:2}" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}
