"""Check early whether timm has published weights of a model, and whether they can be fetched."""

from phalanx.errors import UserError, nearest

FROM_FILE = "fetch the weights where there is a network, and start from that file: --init-from FILE"


def require_weights(name: str) -> None:
    """Refuse a model without published weights, or if they cannot be fetched."""
    import timm

    weights = timm.get_pretrained_cfg(name)
    if weights is None or not weights.has_weights:
        architecture = name.partition(".")[0]
        published = timm.list_pretrained(f"{architecture}.*")
        raise UserError(
            f"model.pretrained: timm has no weights for {name}",
            why=f"published for {architecture}: {', '.join(published) or 'none'}",
            remedy=f"model.name={published[0]}" if published else nearest(name, timm.list_pretrained()),
        )
    if weights.hf_hub_id and not _in_hub_cache(weights.hf_hub_id, weights.hf_hub_filename):
        _require_hub(name, weights.hf_hub_id)


def has_weights(name: str) -> bool:
    """Whether timm publishes weights of a model of its own."""
    import timm

    weights = timm.get_pretrained_cfg(name)
    return weights is not None and weights.has_weights


def cannot_fetch(name: str, error: Exception) -> UserError:
    reason = str(error).partition("\n")[0] or type(error).__name__
    return UserError(
        f"model.pretrained: the weights of {name} could not be fetched",
        why=f"{reason} (is this machine offline?)",
        remedy=FROM_FILE,
    )


def _in_hub_cache(hub_id: str, filename: str | None) -> bool:
    from huggingface_hub import try_to_load_from_cache

    repository, _, revision = hub_id.partition("@")
    names = [filename] if filename else ["model.safetensors", "pytorch_model.bin"]
    return any(isinstance(try_to_load_from_cache(repository, n, revision=revision or None), str) for n in names)


def _require_hub(name: str, hub_id: str) -> None:
    """Try the hub once. Its downloader, which timm calls, tries 14 times in 47 s before it fails."""
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError

    repository, _, revision = hub_id.partition("@")
    try:
        get_hf_file_metadata(hf_hub_url(repository, "config.json", revision=revision or None))
    except HfHubHTTPError:
        return  # the hub answers; if it refuses, the download will say why
    except Exception as error:  # the hub has changed its HTTP library twice, so its error types are not stable
        raise cannot_fetch(name, error) from error
