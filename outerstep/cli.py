"""The `outerstep` command: the node's command line, and `localnet` beside it (which the node does not know)."""

import typer

from node.cli import app, main

FORWARDED = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command("localnet", context_settings=FORWARDED, add_help_option=False)
def localnet(ctx: typer.Context) -> None:
    """Start, watch and stop a network of several nodes on this machine: up, down, status, logs, load, init."""
    from localnet.cli import app as localnet_app

    localnet_app(args=ctx.args or ["--help"], prog_name="outerstep localnet")


__all__ = ["app", "main"]

if __name__ == "__main__":
    main()
