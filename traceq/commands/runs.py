"""`traceq runs`: what is in the store."""

from pathlib import Path

import click

from traceq.commands.storing import CATALOG_HELP, at_terminal, rows_option, store_option

EPILOG = f"""\
\b
Examples:
  traceq runs list --tag h100
  traceq runs show 'night run' --format json
  traceq runs tag 'night run' baseline --remove draft
  traceq runs rm 'night run'
  traceq runs rescan
{CATALOG_HELP}"""


def _example(line: str) -> str:
    return f"\b\nExample:\n  traceq runs {line}\n"


@click.group(epilog=EPILOG)
def runs() -> None:
    """Lists, shows, tags and removes the runs of the store."""


@runs.command("list", epilog=_example("list --tag h100 --format json"))
@click.option("--tag", metavar="TAG", help="Only runs with this tag.")
@rows_option
@store_option
def list_(tag: str | None, form: str, folder: Path | None) -> None:
    """Lists the runs, newest first: ranks, nodes, device, and how long a step takes."""
    from traceq.render.runs import list_table, runs_json
    from traceq.store import Store

    found = Store(folder).runs(tag=tag)
    if form == "json":
        click.echo(runs_json(found), nl=False)
    elif found:
        click.echo(list_table(found, color=at_terminal()), nl=False)
    else:
        with_tag = "" if tag is None else f" with the tag {tag}"
        click.echo(f"traceq: no run{with_tag} in the store: add one with traceq ingest", err=True)


@runs.command(epilog=_example("show 'night run'"))
@click.argument("name")
@rows_option
@store_option
def show(name: str, form: str, folder: Path | None) -> None:
    """Shows what the store knows of the run NAME: its sources with their checksums, its tags."""
    from traceq.render.runs import runs_json, show_table
    from traceq.store import Store

    run = Store(folder).find(name)
    text = runs_json([run]) if form == "json" else show_table(run, color=at_terminal())
    click.echo(text, nl=False)


@runs.command(epilog=_example("tag 'night run' baseline --remove draft"))
@click.argument("name")
@click.argument("tags", nargs=-1, metavar="TAG...")
@click.option("--remove", multiple=True, metavar="TAG", help="Take a tag away. Repeatable.")
@store_option
def tag(name: str, tags: tuple[str, ...], remove: tuple[str, ...], folder: Path | None) -> None:
    """Gives each TAG to the run NAME, and prints the tags that it has then."""
    from traceq.store import Store

    if not tags and not remove:
        message = "name a tag to give, or one to take away with --remove"
        raise click.UsageError(message)
    run = Store(folder).tag(name, tags, remove)
    click.echo(f"{run.name}: {', '.join(run.tags) or 'no tags'}")


@runs.command(epilog=_example("rm 'night run'"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@store_option
@click.pass_context
def rm(context: click.Context, names: tuple[str, ...], folder: Path | None) -> None:
    """Removes each run NAME and its file; the sources stay where they are."""
    from traceq.errors import StoreError
    from traceq.store import Store

    store, failed = Store(folder), False
    for name in names:
        try:
            store.remove(name)
            click.echo(f"{name}: removed")
        except StoreError as error:
            click.echo(f"traceq: {error}", err=True)
            failed = True
    if failed:
        context.exit(2)


@runs.command(epilog=_example("rescan"))
@store_option
@click.pass_context
def rescan(context: click.Context, folder: Path | None) -> None:
    """Adds run files that the catalog lacks, and drops runs whose files are gone.

    Where a catalog was lost, this makes it again from the run files, but for the tags.
    """
    from traceq.store import Store

    done = Store(folder).rescan()
    for name in done.added:
        click.echo(f"{name}: added")
    for name in done.dropped:
        click.echo(f"{name}: dropped, since its file is gone")
    if not done.added and not done.dropped and not done.failures:
        click.echo("nothing to change: every run has its file")
    for failure in done.failures:
        click.echo(f"traceq: {failure}", err=True)
    if done.failures:
        context.exit(2)
