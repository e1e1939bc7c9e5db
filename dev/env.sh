# Sourced by ./phalanx and ./check: makes the virtual environment .venv once, and again when pyproject.toml changes.
# Needs Python 3.11 or newer and a package registry; nothing is installed outside .venv.

say() { printf '%s\n' "$*" >&2; }

find_python() {
    for name in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$name"
            return
        fi
    done
    say "Phalanx needs Python 3.11 or newer, and none was found on the PATH."
    say "Install one, or name it: PYTHON=/path/to/python3.12 $0"
    exit 2
}

# make_env EXTRAS: "" for the program, "[dev]" for the program and its checks.
make_env() {
    extras=$1
    wanted=$(cat "$root/pyproject.toml" "$root/dev/env.sh" | cksum)$extras
    stamp=$root/.venv/.phalanx$extras
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return
    python=$(find_python) || exit 2
    say "Setting up $root/.venv (once; PyTorch with its CUDA libraries is about 5.5 GB: one to three minutes) …"
    if ! [ -x "$root/.venv/bin/pip" ] && ! "$python" -m venv --clear "$root/.venv"; then
        say "The virtual environment could not be made. On Debian and Ubuntu: apt install python3-venv"
        exit 2
    fi
    if ! "$root/.venv/bin/pip" install --quiet --disable-pip-version-check --editable "$root$extras" >&2; then
        say "The packages could not be installed (see above). Is a package registry within reach, and is the disk full?"
        exit 2
    fi
    printf '%s' "$wanted" >"$stamp"
}
