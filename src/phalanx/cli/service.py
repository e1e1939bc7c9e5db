"""`phalanx serve-data` and `phalanx serve-teacher`: helpers of trainers. Heavy imports happen late."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from phalanx.migrate.refuse import MigratingCommand

DEFAULT_BIND = "127.0.0.1:7300"
DEFAULT_TEACHER_BIND = "127.0.0.1:7400"

app = typer.Typer()


@app.command("serve-data", cls=MigratingCommand)
def serve_data(
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE|FILE.yaml] [KEY=VALUE]...", help="as for `phalanx train`"),
    ] = None,
    data: Annotated[str | None, typer.Option(help="digits, synthetic, PATH, or FORMAT:PATH")] = None,
    seed: Annotated[int | None, typer.Option(help="as for `phalanx train`")] = None,
    bind: Annotated[str, typer.Option(help="where to listen: HOST:PORT, or ipc:///PATH")] = DEFAULT_BIND,
    threads: Annotated[int | None, typer.Option(min=1, help="threads that decode; default: one per core")] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="the key that trainers must have; made if missing; default: PHALANX_KEY")
    ] = None,
) -> None:
    """Make batches for trainers here or on other machines (`phalanx train --data-service`)."""
    from phalanx.api.code import with_code
    from phalanx.config.flags import flag_layers
    from phalanx.config.recipes import default_recipe, load_recipe
    from phalanx.config.resolve import parse_override, resolve
    from phalanx.custom import user_code
    from phalanx.custom.installed import install
    from phalanx.roles.request import Request

    words = settings or []
    recipe, overrides = (words[0], words[1:]) if words and "=" not in words[0] else (None, words)
    layers = [*flag_layers({"data": data, "seed": seed}), *map(parse_override, overrides)]
    resolved = resolve([*load_recipe(recipe or default_recipe(layers)).layers, *layers])
    request = with_code(Request(resolved, "phalanx serve-data"))
    install(request.code)

    from phalanx.roles.data_server import serve_data as serve

    with user_code():
        serve(Console(), request.config, bind, threads, key_file)


@app.command("serve-teacher")
def serve_teacher(
    teachers: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="as for `phalanx train --teacher`, in the same order")
    ],
    bind: Annotated[str, typer.Option(help="where to listen: HOST:PORT, or ipc:///PATH")] = DEFAULT_TEACHER_BIND,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, mps")] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="that compute; default: as many as the trainer's")] = None,
    key_file: Annotated[
        Path | None, typer.Option(help="the key that trainers must have; made if missing; default: PHALANX_KEY")
    ] = None,
) -> None:
    """Compute a teacher's logits for trainers here or on other machines (`phalanx train --teacher-service`)."""
    from phalanx.roles.teacher import serve_teacher as serve

    serve(Console(), teachers, bind, device, threads, key_file)
