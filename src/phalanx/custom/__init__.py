"""The user's own code: networks, losses, datasets and more, named by `file.py:Name` or `package.module:name`."""

from phalanx.custom.blame import blame, user_code
from phalanx.custom.code import CodeFile
from phalanx.custom.load import load
from phalanx.custom.objects import reference_of
from phalanx.custom.reference import is_data_reference, is_reference

__all__ = ["CodeFile", "blame", "is_data_reference", "is_reference", "load", "reference_of", "user_code"]
