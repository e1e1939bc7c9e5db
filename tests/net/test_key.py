"""The key file is its owner's alone."""

from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.net.key import key_of, read_key
from tests.data.samples import assert_helpful


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("secret\n")
    file.chmod(0o600)
    assert key_of({"PHALANX_KEY_FILE": str(file)}) == "secret"
    for mode in (0o640, 0o604, 0o620):
        file.chmod(mode)
        with pytest.raises(UserError) as refused:
            read_key(file)
        assert_helpful(refused.value, f"mode is {mode:o}", f"chmod 600 {file}")
