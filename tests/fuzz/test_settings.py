"""Attacks on what users and clusters write: recipes, overrides, durations, lists of hosts."""

import tempfile
from pathlib import Path

from hypothesis import example
from hypothesis import strategies as st

from phalanx.config.durations import Duration
from phalanx.config.recipes import load_recipe
from phalanx.config.resolve import parse_override, resolve
from phalanx.launch.hosts import parse_hosts, read_hostfile
from phalanx.launch.launchers.nodelist import counts, expand
from tests.fuzz.budget import fuzz
from tests.fuzz.guard import guarded
from tests.fuzz.mutate import damaged

RECIPE = b"""# a comment
name: mine
claim: {accuracy: 90 %, cost: 1 min}
extends: digits
model: {name: wrn10_1, options: {drop: 0.1}}
optim: {lr: 1e-3, schedule: {kind: step, milestones: [30ep, 60ep]}}
train: {length: 2ep, seed: 0}
data: &data {source: digits, when: 2001-12-14t21:59:43.10-05:00}
augment: {<<: *data, flip: true, set: !!set {a, b}, pairs: !!omap [a: 1], binary: !!binary aGk=}
"""
LAUGHS = b"".join(b"a%d: &a%d [%s]\n" % (i, i, b", ".join([b"*a%d" % (i - 1)] * 9) if i else b"lol") for i in range(12))
MERGES = b"m0: &m0 {x: 1}\n" + b"".join(
    b"m%d: &m%d {<<: [%s]}\n" % (i, i, b", ".join([b"*m%d" % (i - 1)] * 9)) for i in range(1, 9)
)
FOLDED = b"name: mine\nmodel: {options: &o {a: 1, b: [*o, *o]}}\n"


@fuzz(examples=40, content=damaged([RECIPE]))
@example(content=b"")
@example(content=b"name: mine\nmodel:\n  options:\n    " + LAUGHS.replace(b"\n", b"\n    ").rstrip())
@example(content=MERGES)
@example(content=FOLDED)
@example(content=b"[" * 50_000)
@example(content=b"{a: " * 5_000)
@example(content=b"train: {length: 2001-99-99}")
@example(content=b"train: {seed: " + b"9" * 6000 + b"}")
@example(content=b"? [a, b]\n: 1\n")
@example(content=b"1: 2\nnull: 3\n")
@example(content=b"extends: " + b"a" * 5000 + b".yaml")
@example(content=b'extends: "a\\0.yaml"')
def test_recipes(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, guarded():
        path = Path(folder) / "mine.yaml"
        path.write_bytes(content)
        resolve(load_recipe(str(path)).layers)


KEYS = st.sampled_from(["optim.lr", "train.length", "model.options.x", "data.mean", "exchange.mode", "a..b", "x", ""])
VALUES = st.text(max_size=12) | st.sampled_from(
    ["1e400", "nan", "-1", "9" * 5000, "2001-99-99", "!!python/object:os.system x", "&a [*a]", "[" * 3000, "\ud800"]
)


@fuzz(examples=80, key=KEYS, value=VALUES)
def test_overrides(key: str, value: str) -> None:
    with guarded():
        resolve([*load_recipe("digits").layers, parse_override(f"{key}={value}")])


@fuzz(examples=60, text=st.from_regex(r"\s*[0-9.eE+-]{0,6}(ep|st|ex|%)?\s*", fullmatch=True) | st.text(max_size=9))
@example(text="9" * 5000 + "ep")
@example(text="1e308ep")
def test_durations(text: str) -> None:
    with guarded(ValueError):
        duration = Duration.parse(text)
        with guarded():
            duration.steps(steps_per_epoch=7, samples_per_step=3, total_steps=100)
            str(duration)


HOSTS = ["h", "h:8", "h slots=8", "u@h:22", "[::1]:2", "-oProxyCommand=x@h", "h:0", "u@h:0", "h slots=" + "9" * 5000]
HOST = st.sampled_from(HOSTS) | st.text(st.characters(), max_size=12) | st.text("h:@[]=-0129 .%#", max_size=12)


@fuzz(examples=60, hosts=st.lists(HOST, max_size=4))
def test_hosts(hosts: list[str]) -> None:
    with guarded():
        for host in parse_hosts(hosts, "--ips"):
            assert not host.target.startswith("-")
    with tempfile.TemporaryDirectory() as folder, guarded():
        (Path(folder) / "hosts").write_bytes("\n".join(hosts).encode("utf-8", "surrogatepass"))
        read_hostfile(Path(folder) / "hosts")


@fuzz(examples=80, text=st.text("n0129[]-,x()", max_size=20) | st.text(max_size=9))
@example(text="n[1-999999999999]")
@example(text="n[0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]")
@example(text="n" + "[0-1]" * 40)
@example(text="2(x999999999999)")
@example(text="n[0-" + "9" * 5000 + "]")
@example(text="1" * 5000)
@example(text="[" * 5000)
@example(text="a[1]" * 3000)
def test_lists_of_nodes(text: str) -> None:
    with guarded():
        expand(text)
    with guarded():
        counts(text)
