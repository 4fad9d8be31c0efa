#!/usr/bin/env bash
# Sees to a Chromium for the tests of the page: the one CHROMIUM names, or one on the PATH. Installs
# Debian's by apt-get only when there is none and this user may. Downloads no browser of its own.
set -euo pipefail

usable() {  # the names tests/web/conftest.py looks for too; one that only says what to install is none
  local name
  for name in ${CHROMIUM:-chromium chromium-browser google-chrome}; do
    if command -v "$name" >/dev/null 2>&1 && "$name" --version >/dev/null 2>&1; then return 0; fi
  done
  return 1
}

if usable; then exit 0; fi

if [ -z "${CHROMIUM:-}" ]; then  # a CHROMIUM that is set is somebody's choice: only complain
  if [ "$(id -u)" = 0 ]; then root=(); else root=(sudo -n); fi
  if command -v apt-get >/dev/null 2>&1 && ${root[@]+"${root[@]}"} true 2>/dev/null; then
    echo "tideline: installing chromium with apt-get"
    ${root[@]+"${root[@]}"} apt-get update -qq || true
    ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends chromium >/dev/null || true
  fi
fi

hash -r
if ! usable; then
  echo "tideline: the tests of the page need Chromium." >&2
  echo "tideline: install it (Debian, Ubuntu: apt-get install chromium)," >&2
  echo "tideline: or name one: make CHROMIUM=/path/to/chrome test" >&2
  exit 1
fi
