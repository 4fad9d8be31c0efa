#!/usr/bin/env bash
# Sees to what the long tests of Spark on object stores need: Spark's packages, as the lists in
# tests/spark/packages/ name them (Maven fetches them), and moto, which stands for S3, in an environment
# of its own. All of it in a cache folder of this user. Run from the project's root.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tideline-peers
plugin=org.apache.maven.plugins:maven-dependency-plugin:3.6.1
moto=5.2.5
python=${PYTHON:-python3}
mkdir -p "$cache"

for list in tests/spark/packages/*.xml; do
  folder=$cache/$(basename "$list" .xml)-$(sha256sum "$list" | cut -c1-12)
  if [ -d "$folder" ]; then continue; fi
  if ! command -v mvn >/dev/null 2>&1; then
    echo "tideline: these tests need Apache Maven: make kafka installs it, or install it yourself" >&2
    exit 1
  fi
  echo "tideline: fetching what $list names into $folder"
  half=$(mktemp -d "$cache/half-XXXXXX")  # named only when it is whole
  trap 'rm -rf "$half"' EXIT
  mvn -q -B -Dstyle.color=never -f "$list" "$plugin:copy-dependencies" -DoutputDirectory="$half" -DincludeScope=runtime
  chmod 755 "$half"
  mv "$half" "$folder"
done

if [ ! -x "$cache/moto-$moto/bin/moto_server" ]; then
  echo "tideline: installing moto into $cache/moto-$moto"
  rm -rf "$cache/moto-$moto"
  "$python" -m venv "$cache/moto-$moto"
  "$cache/moto-$moto/bin/python" -m pip install --quiet --disable-pip-version-check "moto[s3,server]==$moto"
fi
