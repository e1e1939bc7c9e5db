from pathlib import Path

import pytest

from phalanx.errors import UserError
from phalanx.runs.folder import RunFolder


@pytest.mark.parametrize(
    ("text", "why"), [("", "is empty"), ("- a list\n", "holds no settings"), ("a: [", "cannot be")]
)
def test_a_configuration_that_holds_nothing_is_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UserError, match="cannot be resumed") as refused:
        RunFolder(tmp_path).layer()
    assert why in refused.value.why
