#!/usr/bin/env bash
# Makes .venv if it is not there: finds Python 3.11 or newer, installs it by apt-get only when
# it is missing and this user may. Never touches an existing .venv. Run from the project's root.
set -euo pipefail
venv=${1:-.venv}

if [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; then exit 0; fi

usable() {  # a Python of the right age that can make a virtual environment with pip in it
  command -v "$1" >/dev/null 2>&1 &&
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
  local name
  for name in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14 python; do
    if usable "$name"; then echo "$name"; return 0; fi
  done
  return 1
}

if ! python=$(find_python); then
  if [ "$(id -u)" = 0 ]; then root=(); else root=(sudo -n); fi
  if command -v apt-get >/dev/null 2>&1 && ${root[@]+"${root[@]}"} true 2>/dev/null; then
    echo "tideline: installing python3 and python3-venv with apt-get"
    ${root[@]+"${root[@]}"} apt-get update -qq
    ${root[@]+"${root[@]}"} env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq python3 python3-venv >/dev/null
  fi
  if ! python=$(find_python); then
    echo "tideline: needs Python 3.11 or newer with the venv module." >&2
    echo "tideline: install it (Debian, Ubuntu: apt-get install python3 python3-venv)," >&2
    echo "tideline: or name one: make PYTHON=/path/to/python3.11 test" >&2
    exit 1
  fi
fi

echo "tideline: making $venv with $("$python" --version)"
"$python" -m venv "$venv"
