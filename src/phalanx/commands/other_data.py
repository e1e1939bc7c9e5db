"""The data settings for data that a model was not trained on."""

from collections.abc import Sequence

from phalanx.commands.data_settings import refuse_other_settings
from phalanx.commands.loading import Trained
from phalanx.config.resolve import Layer, nest, resolve
from phalanx.config.schema import DataConfig

# Of the run's own data and of nothing else.
_OF_THE_RUN = ("val", "val_labels", "quarantine", "options")


def other_data(trained: Trained, text: str, settings: Sequence[Layer] = ()) -> DataConfig:
    """The run's settings for `text`: its channels, decoding, names of fields; `settings` replace them."""
    refuse_other_settings(settings)
    run, spec, default = trained.config.data, trained.spec, DataConfig()
    own = run.model_copy(update={"source": text, "channels": spec.channels, "multi_label": spec.multi_label})
    own = own.model_copy(update={name: getattr(default, name) for name in _OF_THE_RUN})
    if text == "synthetic":  # as many classes as the model has
        classes = {"classes": max(2, len(spec.classes))}
        own = own.model_copy(update={"synthetic": run.synthetic.model_copy(update=classes)})
    return resolve([Layer("the run", nest("data", own.model_dump(mode="json"))), *settings]).config.data
