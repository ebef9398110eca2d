"""The options of commands that log on to the admin interface of an instance."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from config_schema.secret_files import find_variable
from server.app.command_line import file_name
from server.cli.doctor.admin_interface import AdminLogin

_USER: Final = "AMPS_ADMIN_USER"
_PASSWORD: Final = "AMPS_ADMIN_PASSWORD"  # noqa: S105 - the name of a variable


def add_login_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for credentials and trusted authorities to a command line."""
    add = parser.add_argument
    add("--user", help=f"as whom to ask there; {_USER} if not given")
    add(
        "--password-file",
        type=Path,
        metavar="FILE",
        help=f"has the user's password in its first line; else {_PASSWORD} has it",
    )
    add(
        "--ca-file",
        type=file_name,
        metavar="FILE",
        help="authorities of its certificate, besides the system's",
    )


def read_login(options: argparse.Namespace) -> AdminLogin:
    """Return the credentials that a command line and the environment give.

    Args:
        options: has those of `add_login_options`.

    Raises:
        OSError: the file with the password cannot be read.
        ValueError: it is empty, or that of the environment cannot be read.
    """
    user = options.user or os.environ.get(_USER, "")
    if options.password_file is None:
        password = find_variable(_PASSWORD, os.environ) or ""
    else:
        lines = options.password_file.read_text("utf-8").splitlines()
        if not lines:
            raise ValueError("it has no password in its first line")
        password = lines[0]
    return AdminLogin(user, password, options.ca_file)
