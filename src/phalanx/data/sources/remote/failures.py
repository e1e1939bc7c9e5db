"""What goes wrong with remote data: what to try again, and what to tell the user."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, TypeVar

from phalanx.data.sources.remote.addresses import is_http, scheme_of
from phalanx.errors import UserError

T = TypeVar("T")
# Waits before further attempts. While data is opened, somebody waits for an answer; a run survives a minute's outage.
OPENING_WAITS_S = (0.5, 1.0)
READING_WAITS_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)


class Failure(Enum):
    MISSING = "missing"
    DENIED = "denied"
    UNREACHABLE = "unreachable"
    TRANSIENT = "transient"
    OTHER = "other"


# By name: the libraries are optional, and each has classes of its own.
_UNREACHABLE = {
    *("ClientConnectorError", "ClientConnectorDNSError", "ClientConnectorSSLError", "ClientConnectorCertificateError"),
    *("EndpointConnectionError", "ConnectTimeoutError", "ConnectionTimeoutError", "ConnectionRefusedError", "gaierror"),
    *("ConnectionError", "ClientOSError", "ProxyConnectionError"),
}
_TRANSIENT = {
    *("ServerDisconnectedError", "ClientPayloadError", "ServerTimeoutError", "SocketTimeoutError", "TimeoutError"),
    *("FSTimeoutError", "ReadTimeoutError", "IncompleteRead", "ConnectionResetError", "BrokenPipeError"),
    *("ResponseStreamingError", "IncompleteReadError", "ConnectionClosedError", "ChecksumError", "Incomplete"),
}
_DENIED = {
    *("PermissionError", "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError"),
    *("DefaultCredentialsError", "RefreshError", "ProfileNotFound", "TokenRetrievalError"),
}
_RETRIED = (Failure.UNREACHABLE, Failure.TRANSIENT)


class Incomplete(Exception):
    """Fewer bytes came than were announced."""


def failure_of(error: BaseException) -> Failure:
    """The kind of an error of fsspec, aiohttp, botocore or gcsfs, by what it was first: some wrap it in another."""
    for each in reversed([*_chain(error)]):
        names = {kind.__name__ for kind in type(each).__mro__}
        status = _status(each)
        if status in (401, 403) or names & _DENIED:
            return Failure.DENIED
        if status in (404, 410) or isinstance(each, FileNotFoundError):
            return Failure.MISSING
        if status in (408, 425, 429) or (status is not None and status >= 500) or names & _TRANSIENT:
            return Failure.TRANSIENT
        if names & _UNREACHABLE:
            return Failure.UNREACHABLE
    return Failure.OTHER


def attempted(action: Callable[[], T], *, opening: bool = False) -> T:
    """The result of an action that is tried again, after growing waits, while it fails for a reason that may pass."""
    for wait_s in OPENING_WAITS_S if opening else READING_WAITS_S:
        try:
            return action()
        except Exception as error:
            if failure_of(error) not in _RETRIED:
                raise
            time.sleep(wait_s)
    return action()


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Turn what libraries raise for an address into a UserError that says what to do."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise _explanation(url, error) from error


def reason_of(error: BaseException) -> str:
    """What a library says, in one line."""
    said = next((str(each) for each in reversed([*_chain(error)]) if str(each).strip()), type(error).__name__)
    return " ".join(said.split())[:300]


def _explanation(url: str, error: Exception) -> UserError:
    kind, said = failure_of(error), reason_of(error)
    if kind is Failure.DENIED:
        return UserError(f"{url} may not be read", why=f"the server denies it: {said}", remedy=_credentials(url))
    if kind is Failure.MISSING:
        return UserError(f"there is nothing at {url}", why=said, remedy=_check_address(url))
    if kind in _RETRIED:
        return UserError(
            f"{url} cannot be reached",
            why=f"several attempts failed: {said}",
            remedy=f"check the network, the proxy (HTTPS_PROXY) and the name of the server{_endpoint(url)}",
        )
    return UserError(f"{url} cannot be read", why=said, remedy=f"check the address{_endpoint(url)}")


def _credentials(url: str) -> str:
    if scheme_of(url) in ("s3", "s3a"):
        return (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; "
            f"for a public bucket: data.remote_options='{{anon: true}}'{_endpoint(url)}"
        )
    if scheme_of(url) in ("gs", "gcs"):
        return (
            "set GOOGLE_APPLICATION_CREDENTIALS, or log in with `gcloud auth application-default login`; "
            "for a public bucket: data.remote_options='{token: anon}'"
        )
    if is_http(url):
        return "check the address; a header with a token is data.remote_options='{headers: {Authorization: …}}'"
    return "check the credentials; data.remote_options has those that fsspec's file system takes"


def _check_address(url: str) -> str:
    if is_http(url):
        return "check the address in a browser; one of a folder ends in a slash"
    return f"check the names of bucket and folder{_endpoint(url)}"


def _endpoint(url: str) -> str:
    return "; AWS_ENDPOINT_URL names another server than Amazon's" if scheme_of(url) in ("s3", "s3a") else ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    seen = set[int]()
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)


def _status(error: BaseException) -> int | None:
    """The status of an answer over http, wherever a library keeps it."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return found if isinstance(found, int) else None
    for name in ("status", "code"):
        found = getattr(error, name, None)
        if isinstance(found, int) and 100 <= found < 600:
            return found
    return None
