"""What a data server and a trainer have to agree on, and what trainers do to batches themselves."""

from phalanx.config.resolve import parse_override, resolve
from phalanx.data.service.terms import Terms, difference, terms_of
from tests.data.service.servers import pipeline_of


def terms(*words: str) -> Terms:
    config = resolve([parse_override(word) for word in ("data.source=digits", *words)]).config
    return terms_of(config, pipeline_of(config), "a test")


def test_a_server_need_not_know_how_trainers_mix() -> None:
    plain = terms()
    mixed = terms("augment.mixup=0.2", "augment.mix_probability=0.5", "augment.mix_switch=1", "augment.mix_until=80%")
    assert not difference(mixed, plain)
    assert "augment.flip is 0.5 for the trainer and 0.0 for the server" in difference(terms("augment.flip=0.5"), plain)
