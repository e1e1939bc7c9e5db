"""Values that may hold secrets are not in the recorded command; their names are."""

from phalanx.api.arguments import call_text
from phalanx.api.masking import masked_words


def test_words() -> None:
    typed = ["launch", "--env", "TOKEN=s3cret", "--env=A=b=c", "--image", "x", "--", "train", "optim.lr=0.1"]
    typed += ["--notify", "https://hooks.example.org/s3cret", "--notify=say s3cret", "log.notify=[s3cret]"]
    masked = ["launch", "--env", "TOKEN=***", "--env=A=***", "--image", "x", "--", "train", "optim.lr=0.1"]
    assert masked_words(typed) == [*masked, "--notify", "***", "--notify=***", "log.notify=***"]
    assert masked_words(["log.notify = s3cret", " log = {notify: s3cret}"]) == ["log.notify =***", " log =***"]


def test_calls() -> None:
    given = {"notify": "https://s3cret", "epochs": 2, "settings": {"log.notify": ["s3cret"], "log": {"notify": ["s"]}}}
    assert call_text("train", "digits", given) == (
        "phalanx.train('digits', notify='***', epochs=2, settings={'log.notify': '***', 'log': {'notify': '***'}})"
    )
    assert call_text("train", None, {"notify": None}) == "phalanx.train()"
