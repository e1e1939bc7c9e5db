"""Augmented images of a run: drawn from its data; a run's own code is run only where the user said so."""

from pathlib import Path

import pytest
from PIL import Image

from phalanx.commands.augmented import main
from tests.board.made_runs import make_run

HARM = "from pathlib import Path\nPath(__file__).with_name('harm').touch()\nclass Flip: ...\n"


def test_the_first_images_as_the_model_sees_them(tmp_path: Path) -> None:
    out = tmp_path / "samples.png"
    assert main(str(make_run(tmp_path / "run")), str(out)) == 0
    with Image.open(out) as page:
        assert page.width > page.height > 200
        assert len(page.getcolors(1 << 20) or []) > 10


@pytest.mark.parametrize("how", ["reference", "package", "shadow"])
def test_a_runs_own_code_is_not_run(tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody else's run may name a transform, or hold a file called like a module that is imported anyway."""
    run = make_run(tmp_path / "run")
    (run / "code").mkdir()
    (run / "code" / "mine.py").write_text(HARM)
    config = (run / "config.yaml").read_text()
    added = {
        "reference": ("transform: null", "transform: code/mine.py:Flip"),
        "package": ("packages: {}", "packages: {mine: abc}"),
        "shadow": ("files: {}", "files: {mine.py: abc}"),
    }[how]
    assert added[0] in config, config
    (run / "config.yaml").write_text(config.replace(*added))
    assert main(str(run), str(tmp_path / "samples.png")) == 2
    assert "has code of its own" in capsys.readouterr().err
    assert not (tmp_path / "samples.png").exists()
    assert not list(tmp_path.rglob("harm"))
