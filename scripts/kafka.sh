#!/usr/bin/env bash
# Sees to Apache Kafka for the long tests: a broker and Spark's connector, as the two lists of jars in
# tests/spark/kafka/ name them, in a cache folder of this user. Maven fetches them; it is installed
# by apt-get only when it is missing and this user may. Run from the project's root.
set -euo pipefail
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tideline-peers
plugin=org.apache.maven.plugins:maven-dependency-plugin:3.6.1

folder_of() {  # a folder per list: a changed list is fetched anew
  echo "$cache/kafka-$1-$(sha256sum "tests/spark/kafka/$1.xml" | cut -c1-12)"
}

usable() { [ -d "$(folder_of broker)" ] && [ -d "$(folder_of connector)" ]; }

if usable; then exit 0; fi

bash scripts/java.sh

if ! command -v mvn >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then root=(); else root=(sudo -n); fi
  if command -v apt-get >/dev/null 2>&1 && ${root[@]+"${root[@]}"} true 2>/dev/null; then
    echo "tideline: installing maven with apt-get"
    ${root[@]+"${root[@]}"} apt-get update -qq || true
    ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends maven >/dev/null || true
    hash -r
  fi
fi

if ! command -v mvn >/dev/null 2>&1; then
  echo "tideline: the Kafka tests need Apache Maven, which fetches the broker and the connector." >&2
  echo "tideline: install it (Debian, Ubuntu: apt-get install maven), then: make kafka" >&2
  exit 1
fi

for name in broker connector; do
  folder=$(folder_of "$name")
  if [ -d "$folder" ]; then continue; fi
  echo "tideline: fetching the Kafka $name into $folder"
  mkdir -p "$cache"
  half=$(mktemp -d "$cache/kafka-XXXXXX")  # named only when it is whole
  trap 'rm -rf "$half"' EXIT
  if ! mvn -q -B -Dstyle.color=never -f "tests/spark/kafka/$name.xml" "$plugin:copy-dependencies" \
    -DoutputDirectory="$half" -DincludeScope=runtime; then
    echo "tideline: maven could not fetch the jars of tests/spark/kafka/$name.xml (see above)." >&2
    echo "tideline: it needs the network, or a mirror in your own settings.xml; then: make kafka" >&2
    exit 1
  fi
  mv "$half" "$folder"
done
