#!/usr/bin/env bash
# Sees to mingo, an independent implementation of MongoDB's conditions that the tests compare with:
# the version in tests/where/peers/mingo.version, in a cache folder of this user. Installs node and npm
# by apt-get only when they are missing and this user may. Run from the project's root.
set -euo pipefail
version=$(cat tests/where/peers/mingo.version)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/tideline-peers/mingo-$version

usable() { command -v node >/dev/null 2>&1 && [ -f "$folder/node_modules/mingo/package.json" ]; }

if usable; then exit 0; fi

if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
  if [ "$(id -u)" = 0 ]; then root=(); else root=(sudo -n); fi
  if command -v apt-get >/dev/null 2>&1 && ${root[@]+"${root[@]}"} true 2>/dev/null; then
    echo "tideline: installing nodejs and npm with apt-get"
    ${root[@]+"${root[@]}"} apt-get update -qq || true
    ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null || true
    hash -r
  fi
fi

if command -v npm >/dev/null 2>&1; then
  echo "tideline: installing mingo $version into $folder"
  mkdir -p "$folder"
  npm install --prefix "$folder" --no-package-lock --no-save --no-audit --no-fund --loglevel=error \
    "mingo@$version" >/dev/null || rm -rf "$folder/node_modules"
fi

if ! usable; then
  echo "tideline: the tests compare conditions with mingo, which needs node and npm." >&2
  echo "tideline: install them (Debian, Ubuntu: apt-get install nodejs npm), then: make mingo" >&2
  exit 1
fi
