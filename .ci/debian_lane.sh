# shellcheck shell=bash
# Sourced by a lane of a Debian of its own, made by debian_prepare.sh, with arguments of pytest: the suite on SQLite, what uses
# most of Django with Django 6.0, then what these name on PostgreSQL, and on MariaDB where that is installed.
database=(--touching database "$@")
. "$CI_DIR/lane.sh"
prepared
namespaces

root=$LANE_DIR/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
postgresql=$(cd "$root" && echo usr/lib/postgresql/*/bin)
inside() {
    env --ignore-environment HOME=/root LC_ALL=C.UTF-8 PATH="/$postgresql:/usr/sbin:/usr/bin:/sbin:/bin" \
        "${variables[@]}" chroot "$root" "$@"
}
# Half as many examples of what the lanes of the databases have tried on other versions of the same.
variables=(ZRANK_TEST_REDIS_BINARY=/usr/bin/redis-server ZRANK_TEST_EXAMPLES=4)
inside python3 -c 'import django, platform; print("Python", platform.python_version(), "Django", django.__version__)'
inside redis-server --version

run() { suite inside sh -c 'cd /opt/suite/checkout && exec "$@"' - python3 -m pytest -n 2 "$@"; }
# What depends on versions: the ORM, triggers, REST, the admin, commands, asyncio, what scripts reply. What takes long and is
# the same on every version is left to the other lanes: proofs of uniformity and order, shards, clusters, faults, the model.
elsewhere=(combined torture example benchmarks model test_asking.py test_ceiling_of_reads.py test_cluster.py test_dealing.py test_docs.py
    test_hold.py test_near.py test_not_built.py test_replicas.py
    parts/shards test_structure.py test_uniformity.py
    sync/test_{breaker,ceiling,failovers,health,histories,limits,pieces,surprises}.py
    sync/test_{verify,verify_calls,verify_facets}.py parts/write_behind/test_scores_{states,wide}.py)
elsewhere=("${elsewhere[@]/#/--ignore=tests/}")
run "${elsewhere[@]}"
# Projects that are released, and installed with some apps of Django only: processes, so they are marked slow.
run -m slow tests/outside/test_{releases,installed_apps}.py

usual=("${variables[@]}")
variables+=(PYTHONPATH=/opt/django60)
inside python3 -c 'import django; print("Django", django.__version__); assert django.VERSION[:2] == (6, 0)'
run tests/commands tests/rest_framework tests/test_{admin,async,checks,database,testing}.py tests/sync/test_{capture,push,triggers}.py
variables=("${usual[@]}")

inside install -d -o postgres /opt/postgresql
inside setpriv --reuid=postgres --regid=postgres --init-groups sh -c '
    cd /opt/postgresql
    initdb --pgdata=cluster --username=postgres --auth=trust --encoding=UTF8 --no-sync >log
    pg_ctl --pgdata=cluster --log=log --wait start --options="-c listen_addresses= -c fsync=off \
        -c unix_socket_directories=/opt/postgresql -c max_prepared_transactions=8" >>log || { cat log; exit 1; }'
inside postgres --version
variables+=(ZRANK_TEST_DATABASE=postgresql ZRANK_TEST_DATABASE_HOST=/opt/postgresql ZRANK_TEST_DATABASE_USER=postgres)
run "${database[@]}" "${elsewhere[@]}"
inside setpriv --reuid=postgres --regid=postgres --init-groups pg_ctl --pgdata=/opt/postgresql/cluster --mode=immediate stop
[[ -x $root/usr/sbin/mariadbd ]] || exit 0

variables=("${usual[@]}")
inside install -d -o mysql /opt/mariadb
inside mariadb-install-db --no-defaults --user=mysql --datadir=/opt/mariadb/data --skip-test-db \
    --auth-root-authentication-method=normal >"$LANE_DIR/mariadb.log" 2>&1
inside mariadbd --no-defaults --user=mysql --datadir=/opt/mariadb/data --socket=/opt/mariadb/socket --skip-networking \
    --skip-log-bin --innodb-flush-log-at-trx-commit=0 --character-set-server=utf8mb4 >>"$LANE_DIR/mariadb.log" 2>&1 &
answers 60 inside mariadb-admin --no-defaults --socket=/opt/mariadb/socket --user=root ping
inside mariadbd --version
variables+=(ZRANK_TEST_DATABASE=mariadb ZRANK_TEST_DATABASE_HOST=/opt/mariadb/socket ZRANK_TEST_DATABASE_USER=root)
run "${database[@]}" "${elsewhere[@]}"
