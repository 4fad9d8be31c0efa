#!/usr/bin/env bash
# Sees to a Java that Spark can run on, 17 or newer: JAVA_HOME's, or the one on the PATH. Installs a
# headless one by apt-get only when there is none and this user may. Touches no Java that is there.
set -euo pipefail

if [ -n "${JAVA_HOME:-}" ]; then java=$JAVA_HOME/bin/java; else java=java; fi  # as Spark chooses

usable() {
  local version
  command -v "$java" >/dev/null 2>&1 || return 1
  version=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
  [ "${version:-0}" -ge 17 ]
}

if usable; then exit 0; fi

if [ -z "${JAVA_HOME:-}" ]; then  # a JAVA_HOME that is set is somebody's choice: only complain
  if [ "$(id -u)" = 0 ]; then root=(); else root=(sudo -n); fi
  if command -v apt-get >/dev/null 2>&1 && ${root[@]+"${root[@]}"} true 2>/dev/null; then
    ${root[@]+"${root[@]}"} apt-get update -qq || true
    for package in openjdk-17-jre-headless openjdk-21-jre-headless; do  # which one, by the release
      echo "tideline: installing $package with apt-get"
      if ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq "$package" >/dev/null; then break; fi
    done
  fi
fi

hash -r
if ! usable; then
  echo "tideline: the Spark tests need Java 17 or newer; '$java' is not one." >&2
  echo "tideline: install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless)," >&2
  echo "tideline: or name one: make JAVA_HOME=/path/to/jdk-17 test" >&2
  exit 1
fi
