"""`tilewise doctor`."""

from __future__ import annotations

import click

from tilewise.cli.formatting import VERDICT_MARKS, about
from tilewise.cli.options import common, database, print_json

__all__ = ["doctor"]


@click.command()
@database
@common
def doctor(url: str | None, as_json: bool) -> int:
    """Show what is installed, which devices work, and which database and folders are used.

    For everything that does not work it says what to do. It changes nothing. Exits with 1 if something that you set up
    does not work, such as a database that cannot be opened; a device that this machine lacks is no such thing.
    """
    from tilewise.settings import read_settings
    from tilewise.tuner.diagnostics.doctor import examine
    from tilewise.tuner.diagnostics.selftest import Verdict

    settings = read_settings()
    found = list(examine(settings, url or settings.database_url))
    good = all(finding.verdict is not Verdict.FAILED for finding in found)
    if as_json:
        print_json({"about": about(), "good": good, "findings": [finding.to_json() for finding in found]})
    else:
        click.echo(about())
        for finding in found:
            click.echo(f"{VERDICT_MARKS[finding.verdict]}  {finding.name:11}  {finding.detail}")
    return 0 if good else 1
