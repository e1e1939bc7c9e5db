# Sourced by ./check and .ci/run, in the checkout's folder.
unset PYTHONDONTWRITEBYTECODE # else each of hundreds of processes compiles all modules anew

# run_tests WORDS…: pytest. Four tests at a time keep two cores busy: tests of jobs on several hosts mostly wait.
run_tests() (
    if folder=$(folder_in_memory); then
        trap 'rm -rf "$folder"' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        export PYTEST_DEBUG_TEMPROOT="$folder"
    fi
    .venv/bin/python -m pytest -p dev.repeat_failed -n 4 --dist worksteal "$@"
)

# folder_in_memory: makes a folder for the files of tests, where there is room for it. Runs flush their files to the disk,
# which takes 10 ms a file on most disks; nothing is to be learnt from that. Programs in the folder can be started. Its name
# is short, since those of Unix sockets below it end at 107 characters.
folder_in_memory() {
    df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $4 > 6e6 {room = 1} END {exit !room}' || return 1
    awk '/^MemAvailable/ && $2 > 12e6 {room = 1} END {exit !room}' /proc/meminfo 2>/dev/null || return 1
    made=$(mktemp -d /dev/shm/phx-XXXX) || return 1
    printf '#!/bin/sh\n' >"$made/program"
    chmod +x "$made/program"
    if ! "$made/program" 2>/dev/null; then
        rm -rf "$made"
        return 1
    fi
    printf '%s\n' "$made"
}
