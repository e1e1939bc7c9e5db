import pytest

from phalanx.config.flags import FLAGS, flag_layers, imply_collective
from phalanx.config.resolve import Layer, parse_override, resolve, setting_keys
from phalanx.config.schema import RunConfig
from phalanx.errors import UserError


def test_later_layers_win_and_origins_are_kept() -> None:
    resolved = resolve(
        [
            Layer("recipe base", {"optim": {"lr": 0.4, "momentum": 0.8}}),
            *flag_layers({"lr": 0.3}),
            parse_override("optim.lr=2e-1"),
        ]
    )
    assert resolved.config.optim.lr == 0.2
    origins = {key: origin for key, _, origin in resolved.rows()}
    assert origins["optim.lr"] == "optim.lr=2e-1"
    assert origins["optim.momentum"] == "recipe base"
    assert origins["optim.name"] == "default"


def test_rows_cover_every_setting() -> None:
    assert [key for key, _, _ in resolve([]).rows()] == setting_keys()


def test_a_dumped_configuration_resolves_to_itself() -> None:
    config = resolve([parse_override("train.length=7ep"), parse_override("model.options={width: 2}")]).config
    assert resolve([Layer("file", config.model_dump(mode="json"))]).config == config


def test_free_form_options_take_any_name() -> None:
    resolved = resolve([parse_override("optim.options.betas=[0.9, 0.98]"), parse_override("optim.options.eps=1e-6")])
    assert resolved.config.optim.options == {"betas": [0.9, 0.98], "eps": 1e-6}


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_names_a_setting(flag: str) -> None:
    assert FLAGS[flag][0] in setting_keys()


def test_several_workers_imply_collective_unless_a_method_is_named() -> None:
    def method(base: dict[str, object], *flags: tuple[str, object]) -> str:
        layers = [Layer("recipe", {"exchange": base})]
        return resolve([*layers, *imply_collective(layers, flag_layers(dict(flags)))]).config.exchange.method

    assert method({}, ("workers", 2)) == "collective"
    assert method({"method": "pserver"}, ("workers", 2)) == "pserver"
    assert method({}, ("workers", 2), ("update_method", "pserver")) == "pserver"
    assert method({}) == "local"
    with pytest.raises(UserError, match="one worker"):
        method({}, ("workers", 2), ("update_method", "local"))


def test_durations_survive_the_file() -> None:
    config = resolve([parse_override("train.length=166.66667ep")]).config
    assert resolve([Layer("file", config.model_dump(mode="json"))]).config.train.length == config.train.length


def test_off_is_a_word_where_a_setting_has_it() -> None:
    assert resolve([parse_override("machine.fast_path=off")]).config.machine.fast_path == "off"


def test_flags_are_written_as_settings() -> None:
    config = resolve(flag_layers({"epochs": 2.5, "lr_step_epochs": "1, 2", "lr_factor": 0.5, "model": None})).config
    assert (str(config.train.length), [str(place) for place in config.schedule.milestones]) == ("2.5ep", ["1ep", "2ep"])
    assert config.schedule.kind == "step"
    assert config.model.name == RunConfig().model.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("optim.lrr=1", "optim.lr"),
        ("lr=1", "optim.lr"),
        ("optimm.lr=1", "optim.lr"),
        ("optim=1", "optim.lr"),
        ("optim.lr=fast", "valid number"),
        ("optim.lr=-1", "greater than 0"),
        ("optim.lr=.inf", "finite"),
        ("optim.momentum=1", "less than 1"),
        ("train.batch_size=2.5", "integer"),
        ("train.length=90", "no unit"),
        ("augment.crop=random", "'random-resized'"),
        ("schedule.kind=step", "milestones"),
        ("model.pretrained=maybe", "bool"),
        ("optim.lr", "key=value"),
        ("=3", "key=value"),
        ("optim.lr=[", "YAML"),
    ],
)
def test_mistakes_are_explained(text: str, expected: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve([parse_override(text)])
    assert expected in str(caught.value)
    assert caught.value.why
    assert caught.value.remedy


def test_the_origin_of_a_secret_is_its_key_alone() -> None:
    for text in ("log.notify = https://s3cret", "log={notify: [s3cret]}"):
        assert "s3cret" not in parse_override(text).origin
    assert parse_override("optim.lr=0.2").origin == "optim.lr=0.2"
