#!/usr/bin/env bash
# Sees to TypeScript, which the tests check the types of the JavaScript client with: the version in
# tests/web/typescript.version, in a cache folder of this user. scripts/mingo.sh sees to node and npm.
set -euo pipefail
version=$(cat tests/web/typescript.version)
folder=${XDG_CACHE_HOME:-$HOME/.cache}/tideline-peers/typescript-$version
if [ -f "$folder/node_modules/typescript/package.json" ]; then exit 0; fi

echo "tideline: installing typescript $version into $folder"
mkdir -p "$folder"
if ! npm install --prefix "$folder" --no-package-lock --no-save --no-audit --no-fund --loglevel=error \
    "typescript@$version" >/dev/null; then
  rm -rf "$folder/node_modules"
  echo "tideline: the types of the JavaScript client are not checked without typescript; try: make typescript" >&2
  exit 1
fi
