"""`tilewise kernels`, and `tilewise kernels sign|withdraw`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tilewise.cli.options import Group, common, database, print_json
from tilewise.errors import UsageError
from tilewise.settings import read_settings

if TYPE_CHECKING:
    from tilewise.db.signed_kernels import SignedKernels

__all__ = ["kernels"]


@click.group(cls=Group, invoke_without_command=True)
@database
@common
@click.pass_context
def kernels(context: click.Context, url: str | None, as_json: bool) -> None:
    """List the kernels that can be tuned. Name a kernel of your own as path/to/file.py:SPEC."""
    from tilewise.kernels import registry

    if context.invoked_subcommand is not None:
        return
    specs = [registry.load(name) for name in registry.names()]
    if as_json:
        print_json({"kernels": [spec.to_json() for spec in specs]})
        return
    for spec in specs:
        click.echo(f"{spec.name}  {spec.summary}")
        click.echo(f"  dimensions  {', '.join(spec.dims)}")
        for flag in spec.flags:
            click.echo(f"  flag        {flag.name}: {', '.join(str(value).lower() for value in flag.values)}")
        click.echo(f"  dtypes      {', '.join(spec.dtypes)}")
        click.echo(f"  parameters  {', '.join(p.name for p in spec.parameters)}")


@kernels.command()
@click.argument("file", metavar="FILE.py:SPEC")
@database
@common
def sign(file: str, url: str | None, as_json: bool) -> None:
    """Sign a kernel's file and put it into the database.

    Workers and servers with the same key take it from there. The key is the content of the file $TILEWISE_KERNEL_KEY.
    Signing another file of a kernel of the same name replaces it.
    """
    from tilewise.kernels.signing import read_key
    from tilewise.kernels.signing import sign as signed

    key_file = read_settings().kernel_key_file
    if key_file is None:
        raise UsageError("no kernel key: TILEWISE_KERNEL_KEY names its file, of 32 random bytes or more")
    kernel = signed(file, read_key(key_file))
    with _signed_kernels(url) as stored:
        stored.put(kernel)
    if as_json:
        print_json({"kernel": kernel.name, "digest": kernel.digest})
    else:
        click.echo(f"{kernel.name} is signed; its content hash is {kernel.digest}")


@kernels.command()
@click.argument("name")
@database
@common
def withdraw(name: str, url: str | None, as_json: bool) -> None:
    """Remove a signed kernel from the database. Workers that have it keep it until they end."""
    with _signed_kernels(url) as stored:
        stored.remove(name)
    if as_json:
        print_json({"withdrawn": name})
    else:
        click.echo(f"{name} is withdrawn")


@contextmanager
def _signed_kernels(url: str | None) -> Iterator[SignedKernels]:
    from tilewise.db.signed_kernels import SignedKernels
    from tilewise.db.sql.sql_store import open_store

    with open_store(url or read_settings().database_url, create=True) as store:
        yield SignedKernels(store.database)
