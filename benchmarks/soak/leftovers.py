"""What a job leaves behind on hosts whose /tmp and /dev/shm nobody else uses."""

from pathlib import Path

from tests.lab.hosts import Lab

PRIVATE = ("/tmp", "/dev/shm")


def own_folders(lab: Lab) -> None:
    """Give each host a /tmp and a /dev/shm of its own, so that whatever is there is the job's."""
    for host in lab.names:
        for folder in PRIVATE:
            lab.run(host, ["mount", "-t", "tmpfs", "-o", "mode=1777", "tmpfs", folder], cwd=Path("/"))


def left_behind(lab: Lab, before: set[int]) -> list[str]:
    """Processes, files, sockets that listen. An empty folder is nothing."""
    found = [
        f"{one.host}: process {one.pid} {' '.join(one.words)[:80]}"
        for one in lab.processes("")
        if one.pid not in before and not one.words[0].startswith("sshd")
    ]
    for host in lab.names:
        for folder in PRIVATE:
            root = lab.root(host) / folder.lstrip("/")
            found += [f"{host}: {folder}/{path.relative_to(root)}" for path in root.rglob("*") if not path.is_dir()]
        listening = lab.run(host, ["ss", "-H", "-l", "-t", "-n", "-p"], check=False).stdout.splitlines()
        found += [f"{host}: listens at {line.split()[3]}" for line in listening if '"sshd"' not in line]
    return found
