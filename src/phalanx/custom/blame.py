"""Errors in the user's code: his lines of the traceback, not ours."""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from phalanx.custom.installed import is_users
from phalanx.errors import UserError


def user_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The traceback's lines in the user's code, the innermost last."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame.filename)]


def describe_error(error: BaseException) -> str:
    """The user's lines and the exception, as Python would print them."""
    lines = [line.rstrip("\n") for line in traceback.format_list(user_frames(error))]
    said = "".join(traceback.format_exception_only(type(error), error)).rstrip("\n")
    return "\n".join([*lines, said])


def blame(error: BaseException, remedy: str = "") -> UserError | None:
    """An error of the user's code as one that names his file and line; None where none of his lines took part."""
    if isinstance(error, UserError | KeyboardInterrupt):
        return None
    frames = user_frames(error)
    if not frames:
        inner = error.__cause__ or error.__context__
        return blame(inner, remedy) if inner is not None else None
    last = frames[-1]
    return UserError(
        f"{type(error).__name__} in {last.filename}, line {last.lineno}, in {last.name}",
        why=f"your code raised it:\n{describe_error(error)}",
        remedy=remedy or f"correct {Path(last.filename).name}",
    )


@contextmanager
def user_code(remedy: Callable[[], str] = str) -> Iterator[None]:
    """Turn an error that the user's code raises inside into a UserError that shows his lines."""
    try:
        yield
    except Exception as error:
        blamed = blame(error, remedy())
        if blamed is None:
            raise
        raise blamed from error
