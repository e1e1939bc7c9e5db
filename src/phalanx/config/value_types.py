"""Types of settings' values: numbers in a range, expressions, references to the user's own code."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from phalanx.custom.reference import is_reference

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]


def _named_code(text: str) -> str:
    if not is_reference(text):
        raise ValueError("or your own code, as file.py:Name or package.module:name")
    return text


OwnCode = Annotated[str, AfterValidator(_named_code)]  # a reference to the user's own code


def _expression(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"it is no regular expression ({error})") from error
    return text


Expression = Annotated[str, AfterValidator(_expression)]
