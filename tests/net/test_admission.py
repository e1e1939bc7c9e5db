"""A job without a key: a trainer from another host is refused, and a warning names the remedy."""

import pytest

from phalanx.config.role import AllowedHosts, Role, RoleKind
from phalanx.errors import UserError
from phalanx.net.admission import allowlist_of, refuse_unnamed, warning_of

HERE = ("tcp://127.0.0.1:7164",)
AWAY = ("tcp://10.9.9.9:7164",)


def role(
    allowed_hosts: AllowedHosts,
    servers: tuple[str, ...] = AWAY,
    kind: RoleKind = "server",
    rank: int = 0,
    key: str = "",
) -> Role:
    return Role(
        kind, rank, 2, master="10.9.9.9:9092", servers=servers, key=key, launcher="DMLC", allowed_hosts=allowed_hosts
    )


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (role(AllowedHosts()), ""),
        (role(AllowedHosts(("127.0.0.1",)), HERE), ""),
        (role(AllowedHosts(("127.0.0.1",), first_come=True), HERE), ""),
        (role(AllowedHosts(("10.9.9.9",)), rank=1), ""),
        (role(AllowedHosts(("10.9.9.9",))), "from 10.9.9.9 only;"),
        (role(AllowedHosts(("10.9.9.9",)), kind="trainer"), "from 10.9.9.9 only;"),
        (role(AllowedHosts(("10.9.9.9",)), kind="scheduler"), ""),
        (
            role(AllowedHosts(("127.0.0.1",), first_come=True)),
            "and, until all trainers have joined, any private address;",
        ),
        (
            role(AllowedHosts(("10.9.9.9",)), key="agreed"),
            "from 10.9.9.9 only, and the processes have agreed on a key at",
        ),
        (role(AllowedHosts(tuple(f"10.9.9.{n}" for n in range(6)))), "10.9.9.3 and 2 more only;"),
    ],
)
def test_the_first_ones_warn_where_others_could_come(told: Role, said: str) -> None:
    warning = warning_of(told)
    assert said in warning
    assert bool(warning) == bool(said)
    assert not warning or "PHALANX_KEY_FILE" in warning


def test_a_trainer_that_would_not_be_let_in_is_told_why() -> None:
    near = ("tcp://127.0.0.1:7164",)
    refuse_unnamed(role(AllowedHosts(("10.9.9.9",)), near, kind="trainer"))  # of the server's own machine
    refuse_unnamed(role(AllowedHosts(("10.9.9.9",)), AWAY, kind="server"))
    refuse_unnamed(role(AllowedHosts(), AWAY, kind="trainer"))


def test_a_host_that_nobody_knows_is_named() -> None:
    with pytest.raises(UserError, match=r"nowhere\.invalid is not known"):
        allowlist_of(AllowedHosts(("nowhere.invalid",)))
