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

# PyTorch's own index of builds without CUDA: torch and torchvision that belong together, 1.3 GB with all else instead of 5.5.
cpu_index=https://download.pytorch.org/whl/cpu

# torch_index BUILD: the index that PHALANX_TORCH names: cpu, or an address, or empty for the package registry.
torch_index() {
    case $1 in
    '') ;;
    cpu) printf '%s\n' "$cpu_index" ;;
    *://*) printf '%s\n' "$1" ;;
    *)
        say "PHALANX_TORCH=$1 is neither cpu nor the address of an index, such as $cpu_index"
        exit 2
        ;;
    esac
}

pip_install() { "$root/.venv/bin/pip" install --quiet --disable-pip-version-check "$@" >&2; }

# make_env EXTRAS: "" for the program, "[dev]" for the program and its checks.
make_env() {
    extras=$1
    wanted=$(cat "$root/pyproject.toml" "$root/dev/env.sh" | cksum)$extras
    stamp=$root/.venv/.phalanx$extras # a line about what is installed, and one with the PHALANX_TORCH of that time
    stamps=$(cat "$root"/.venv/.phalanx* 2>/dev/null || true) # all of them name the same torch
    before=$(printf '%s\n' "$stamps" | sed -n 2p)
    torch=${PHALANX_TORCH-$before}
    [ -f "$stamp" ] && [ "$(sed -n 1p "$stamp")" = "$wanted" ] && [ "$torch" = "$before" ] && return
    python=$(find_python) || exit 2
    index=$(torch_index "$torch") || exit 2
    size="PyTorch with its CUDA libraries is about 5.5 GB; PHALANX_TORCH=cpu installs one without: 1.3 GB in all"
    [ -z "$torch" ] || size="PyTorch of PHALANX_TORCH=$torch"
    say "Setting up $root/.venv (once; $size: one to three minutes) …"
    anew=no
    [ -x "$root/.venv/bin/pip" ] || anew=yes
    [ -z "$stamps" ] || [ "$torch" = "$before" ] || anew=yes # pip takes any build of torch that is there for the right one
    if [ "$anew" = yes ] && ! "$python" -m venv --clear "$root/.venv"; then
        say "The virtual environment could not be made. On Debian and Ubuntu: apt install python3-venv"
        exit 2
    fi
    if { [ -n "$index" ] && ! pip_install --index-url "$index" torch torchvision; } ||
        ! pip_install --editable "$root$extras"; then
        say "The packages could not be installed (see above). Is a package registry within reach, and is the disk full?"
        exit 2
    fi
    printf '%s\n%s\n' "$wanted" "$torch" >"$stamp"
}
