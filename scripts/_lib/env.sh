# Sourced by every command: goes to the root of the repository, names the interpreter, makes the environment when needed.
#   source "$(dirname "${BASH_SOURCE[0]}")/_lib/env.sh"
#   ensure_venv
#   exec "$PY" -m tests.harness.something "$@"
# shellcheck shell=bash
set -euo pipefail
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck disable=SC2034  # used by the commands that source this file
PY="$ROOT/.venv/bin/python"
cd "$ROOT"
# Hundreds of processes start in a run of the tests: none shall compile anew what another has compiled.
unset PYTHONDONTWRITEBYTECODE

pip_install() { # ARGUMENT...: into the environment, by the pins; compiled is what gets imported, a fraction of it all
    "$PY" -m pip install -qq --no-input --no-compile --disable-pip-version-check -c constraints.txt "$@"
}

ensure_venv() {
    "$ROOT/scripts/install" --quiet
}
