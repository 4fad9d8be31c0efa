#!/usr/bin/env bash
# Sees to what benchmarks run beside Tideline, or under it: PostgreSQL with PostGIS, Redis and NATS
# (side_by_side.py, spatial.py), etcd (replication.py), fio and nbdfuse (volume.py). Installs Debian's
# packages by apt-get only where one is missing and this user may. What is still missing then is
# named, and the benchmarks run without it.
set -euo pipefail

postgres() {  # Debian keeps the server's programs outside the PATH, one folder a version
  local folder
  for folder in /usr/lib/postgresql/*/bin; do
    if [ -x "$folder/initdb" ]; then return 0; fi
  done
  command -v initdb >/dev/null 2>&1
}

postgis() {
  local file
  for file in /usr/share/postgresql/*/extension/postgis.control; do
    if [ -e "$file" ]; then return 0; fi
  done
  command -v pg_config >/dev/null 2>&1 && [ -e "$(pg_config --sharedir)/extension/postgis.control" ]
}

missing() {  # the packages that are not there
  postgres || echo postgresql
  postgis || echo postgresql-15-postgis-3
  command -v redis-server >/dev/null 2>&1 || echo redis-server
  command -v nats-server >/dev/null 2>&1 || echo nats-server
  command -v etcd >/dev/null 2>&1 || echo etcd-server
  command -v fio >/dev/null 2>&1 || echo fio
  command -v nbdfuse >/dev/null 2>&1 || echo libnbd-bin
  command -v mkfs.ext4 >/dev/null 2>&1 || echo e2fsprogs
}

packages=$(missing)
if [ -z "$packages" ]; then exit 0; fi

if [ "$(id -u)" = 0 ]; then root=(); else root=(sudo -n); fi
if command -v apt-get >/dev/null 2>&1 && ${root[@]+"${root[@]}"} true 2>/dev/null; then
  echo "tideline: installing" $packages "with apt-get"
  ${root[@]+"${root[@]}"} apt-get update -qq || true
  for package in $packages; do  # one by one: what this release does not have stops no other
    # Their own services are not started: the benchmark starts its own, on folders of its own.
    ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
      apt-get install -y -qq --no-install-recommends "$package" >/dev/null || true
  done
fi

hash -r
for package in $(missing); do
  echo "tideline: not installed: $package; benchmarks run without it" >&2
done
