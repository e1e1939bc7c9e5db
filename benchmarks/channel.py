"""What protecting large messages costs: a push and a pull of a ResNet-50's 102 MB, by each candidate in turn.

    python -m benchmarks.channel [--rate 1gbit] [--rounds 5]

Without --rate on loopback; with it between two hosts (network namespaces, needs root) whose link has that rate. All
candidates run in the same minutes, one after the other, and that again and again. Prints a Markdown table.
"""

import argparse
import datetime
import json
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from socket import create_connection, create_server

import zmq

from phalanx.net.client_channel import ClientChannel
from phalanx.net.control import MAX_MESSAGE_BYTES
from phalanx.net.curve import secure_client, secure_server
from phalanx.net.interfaces import free_port
from phalanx.net.server_channel import ServerChannel

KEY = "a key for this measurement"
PART_BYTES, PARTS = 4 << 20, 25
ROUNDS_A_CALL = 4  # the first of them warms up
CANDIDATES = {
    "zmq, not protected": "plain",
    "lane, authenticated (exchange.encrypt=off)": "lane-off",
    "lane, encrypted (exchange.encrypt=on)": "lane-on",
    "TLS 1.3, one connection": "tls",
    "zmq with CURVE": "curve",
}
Once = Callable[[], None]


def serve(candidate: str, host: str, port: int, folder: Path) -> None:
    """Answer each part with a part, until the process is ended."""
    if candidate == "tls":
        return _serve_tls(host, port, folder)
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    address, part = f"tcp://{host}:{port}", bytes(PART_BYTES)
    if candidate.startswith("lane"):
        channel = ServerChannel(context, address, KEY, "the benchmark", harm="measure")
        poller = zmq.Poller()
        poller.register(channel.socket, zmq.POLLIN)
        poller.register(channel._wakeup.fileno(), zmq.POLLIN)
        while True:
            poller.poll()
            try:
                while True:
                    identity, *_ = channel.recv_multipart()
                    channel.send_multipart([bytes(identity.buffer), b"", part], copy=False)
            except zmq.Again:
                continue
    socket = context.socket(zmq.ROUTER)
    socket.set_hwm(0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    secure_server(socket, address, KEY if candidate == "curve" else "")
    socket.bind(address)
    while True:
        frames = socket.recv_multipart(copy=False)
        socket.send_multipart([frames[0], b"", part], copy=False)


def measure(candidate: str, host: str, port: int, folder: Path) -> dict[str, list[float]]:
    """Seconds, and seconds of this side's processor, of each push and pull."""
    once = _tls_client(host, port, folder) if candidate == "tls" else _zmq_client(candidate, f"tcp://{host}:{port}")
    seconds, busy = [], []
    for _ in range(ROUNDS_A_CALL):
        used, begin = _used(), time.perf_counter()
        once()
        seconds.append(time.perf_counter() - begin)
        busy.append(_used() - used)
    return {"seconds": seconds[1:], "busy": busy[1:]}


def _zmq_client(candidate: str, address: str) -> Once:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    part = bytes(PART_BYTES)
    if candidate.startswith("lane"):
        channel = ClientChannel(context, address, KEY, encrypt=candidate == "lane-on", options={})
        channel.connect("server", "tcp://HOST:PORT")

        def over_lane() -> None:
            for _ in range(PARTS):
                channel.send_multipart([b"", part], copy=False)
            received = 0
            while received < PARTS:
                try:
                    channel.recv_multipart()
                    received += 1
                except zmq.Again:
                    channel.poll(1000)

        return over_lane
    socket = context.socket(zmq.DEALER)
    socket.set_hwm(0)
    socket.setsockopt(zmq.MAXMSGSIZE, MAX_MESSAGE_BYTES)
    secure_client(socket, address, KEY if candidate == "curve" else "")
    socket.connect(address)

    def over_zmq() -> None:
        for _ in range(PARTS):
            socket.send_multipart([b"", part], copy=False)
        for _ in range(PARTS):
            socket.recv_multipart(copy=False)

    return over_zmq


def _serve_tls(host: str, port: int, folder: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    place, part = memoryview(bytearray(PART_BYTES)), bytes(PART_BYTES)
    with create_server((host, port)) as listener:
        while True:
            connection = context.wrap_socket(listener.accept()[0], server_side=True)
            try:
                while _fill(connection, place):
                    connection.sendall(part)
            except OSError:
                connection.close()


def _tls_client(host: str, port: int, folder: Path) -> Once:
    context = ssl.create_default_context(cafile=str(folder / "certificate.pem"))
    connection = context.wrap_socket(create_connection((host, port)), server_hostname="phalanx")
    place, part = memoryview(bytearray(PART_BYTES)), bytes(PART_BYTES)

    def over_tls() -> None:
        # Part by part, since one thread cannot send and receive at once: what a first version would do.
        for _ in range(PARTS):
            connection.sendall(part)
            _fill(connection, place)

    return over_tls


def _fill(connection: ssl.SSLSocket, place: memoryview) -> bool:
    filled = 0
    while filled < len(place):
        count = connection.recv_into(place[filled:])
        if count == 0:
            return False
        filled += count
    return True


def _certificate(folder: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "phalanx")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("phalanx")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*form))


def _used() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _words(part: str, candidate: str, host: str, port: int, folder: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.channel", part, candidate, host, str(port), folder]


def main() -> None:
    if sys.argv[1:2] in (["serve"], ["measure"]):
        part, candidate, host, port, folder = sys.argv[1:]
        if part == "serve":
            return serve(candidate, host, int(port), Path(folder))
        return print(json.dumps(measure(candidate, host, int(port), Path(folder))))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", help="of the link, as tc writes it: 1gbit")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        _certificate(Path(folder))
        found = _rounds(stack, folder, options.rate, options.rounds)
    _report(found, options.rate)
    return None


def _rounds(stack: ExitStack, folder: str, rate: str | None, rounds: int) -> dict[str, dict[str, list[float]]]:
    def on(number: int, words: list[str]) -> list[str]:
        return words if lab is None else lab.command(f"h{number}", words, Path.cwd())

    lab, host = None, "127.0.0.1"
    if rate:
        from tests.lab.hosts import hosts_up

        lab = stack.enter_context(hosts_up(2))
        host = "10.77.0.1"
        for number in (1, 2):
            shape = f"tc qdisc add dev eth0 root tbf rate {rate} burst 1mb latency 50ms"
            subprocess.run(on(number, shape.split()), check=True)
    ports = {name: free_port("127.0.0.1") for name in CANDIDATES.values()}
    for name, port in ports.items():
        server = subprocess.Popen(on(1, _words("serve", name, host, port, folder)))
        stack.callback(server.wait)
        stack.callback(server.kill)
    time.sleep(3)
    found: dict[str, dict[str, list[float]]] = {name: {"seconds": [], "busy": []} for name in CANDIDATES.values()}
    for _ in range(rounds):
        for name, port in ports.items():
            words = on(2, _words("measure", name, host, port, folder))
            result = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            for kind, values in result.items():
                found[name][kind] += values
    return found


def _report(found: dict[str, dict[str, list[float]]], rate: str | None) -> None:
    base = statistics.median(found["plain"]["seconds"])
    print(f"| {'loopback' if rate is None else rate} | push and pull, ms | against not protected | client's CPU, ms |")
    print("| --- | --- | --- | --- |")
    for title, name in CANDIDATES.items():
        seconds, busy = (statistics.median(found[name][kind]) for kind in ("seconds", "busy"))
        print(f"| {title} | {1000 * seconds:.0f} | {seconds / base:.2f} | {1000 * busy:.0f} |")


if __name__ == "__main__":
    main()
