"""Who may look: a token in the address that the terminal prints, a cookie afterwards; and which Host is answered."""

import functools
import hmac
import ipaddress
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

Next = Callable[[Request], Awaitable[Response]]
HEADERS = {
    # Scripts, styles and pictures of this server alone; nothing inline, nothing from elsewhere.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # an address with the token goes nowhere
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}
OWN_HEADER = "x-phalanx-board"  # pages of other origins cannot send it without being asked, and are refused then


@dataclass(frozen=True)
class Guard:
    """The token, and the secret that browsers get for it. `host` is the address that is listened at."""

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        """Cookies of a host are the same for all its ports: the name tells boards apart."""
        return f"phalanx-board-{self.port}"

    async def __call__(self, request: Request, follow: Next) -> Response:
        response = await self._answer(request, follow)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if "cache-control" not in response.headers:
            response.headers["Cache-Control"] = "no-store"
        return response

    async def _answer(self, request: Request, follow: Next) -> Response:
        if not self.is_known_host(request.headers.get("host", "")):
            return PlainTextResponse("this name of the host is not known here", 421)
        if _is_from_elsewhere(request):
            return PlainTextResponse("this request did not come from the board's page", 403)
        given = request.query_params.get("token")
        if request.method == "GET" and request.url.path == "/" and given is not None and _same(given, self.token):
            entered = RedirectResponse("/", 303)  # the address without the token is what stays in the history
            entered.set_cookie(self.cookie, self.session, httponly=True, samesite="lax", path="/")
            return entered
        if not self._is_known(request):
            return PlainTextResponse(
                "Open the address that `phalanx board` printed: it ends in ?token=…",
                401,
                {"WWW-Authenticate": "Bearer"},
            )
        writes = request.method not in ("GET", "HEAD")
        if writes and (OWN_HEADER not in request.headers or not self._is_own_origin(request)):
            return PlainTextResponse("this request did not come from the board's page", 403)
        return await follow(request)

    def _is_known(self, request: Request) -> bool:
        kind, _, bearer = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(bearer.strip(), self.token):
            return True
        try:
            held = SimpleCookie(request.headers.get("cookie", "")).get(self.cookie)
        except CookieError:
            return False
        return held is not None and _same(held.value, self.session)

    def _is_own_origin(self, request: Request) -> bool:
        origin = request.headers.get("origin")
        return origin is None or origin == f"http://{request.headers.get('host', '')}"

    def is_known_host(self, given: str) -> bool:
        """Whether a Host header names this server. A page elsewhere whose name points here (rebinding) does not.

        The names of the loopback count with any port: a tunnel (ssh -L) may have another one at its beginning.
        """
        name, _, port = given.rpartition(":") if _has_port(given) else (given, "", "")
        name = name.strip("[]").lower()
        if name in ("localhost", "127.0.0.1", "::1"):
            return True
        if port and port != str(self.port):
            return False
        if name == self.host.lower():
            return True
        if is_loopback(self.host):
            return False
        return _is_address(name) or name in _own_names()


@functools.cache
def _own_names() -> tuple[str, ...]:
    """Of this machine. Asked once: a name server may be slow."""
    return socket.gethostname().lower(), socket.getfqdn().lower()


def _is_from_elsewhere(request: Request) -> bool:
    """Whether a page of another origin asks, as browsers tell. Such a page may lead to the board, and no more.

    Another port of this machine counts as the same site for cookies, so they would be sent.
    """
    if request.headers.get("sec-fetch-site", "none") in ("none", "same-origin"):
        return False
    leads_here = request.method == "GET" and request.headers.get("sec-fetch-mode") == "navigate"
    return not (leads_here and request.url.path == "/")


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _has_port(given: str) -> bool:
    name, colon, port = given.rpartition(":")
    return bool(colon) and port.isdecimal() and (":" not in name or name.endswith("]"))


def _same(given: str, secret: str) -> bool:
    """Compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), secret.encode())
