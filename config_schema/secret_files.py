"""Values of variables that are in files: NAME_FILE, and the credentials of systemd.

Containers mount secrets as files and name them in variables called NAME_FILE; systemd puts the
credentials of a service (`LoadCredential=NAME:PATH`) into $CREDENTIALS_DIRECTORY. Both keep a
secret out of the environment, which child processes inherit and crash reports contain.

Source: systemd.exec(5), Credentials.
"""

import errno
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

MAX_SIZE: Final = 65_536
"""The maximum size of such a file, in bytes."""

_SUFFIX: Final = "_FILE"
_DIRECTORY: Final = "CREDENTIALS_DIRECTORY"
_PLAIN_NAME: Final = re.compile(r"\w[\w.-]*", re.ASCII)


class SecretFileError(ValueError):
    """The file with the value of a variable cannot be used; the text has the file and the cause."""


def find_variable(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the value of a variable, from the environment or from its file; None without either.

    Raises:
        SecretFileError: its file cannot be read.
    """
    value = environ.get(name)
    return read_secret_file(name, environ) if value is None else value


def read_secret_file(name: str, environ: Mapping[str, str]) -> str | None:
    """Return the value of a variable from its file, without line ends at the end of the file.

    Args:
        name: the variable.
        environ: has the path, as NAME_FILE or CREDENTIALS_DIRECTORY.

    Returns:
        The value; None if neither names a file.

    Raises:
        SecretFileError: the file cannot be read, is too long, or is not UTF-8.
    """
    path = _path_of(name, environ)
    if path is None:
        return None
    try:
        content = _read(path)
        text = content.decode()
    except OSError as error:
        raise _unreadable(path, error) from None
    except UnicodeDecodeError:
        raise SecretFileError(f"{path}: expected UTF-8") from None
    if len(content) > MAX_SIZE:
        raise SecretFileError(f"{path}: longer than {MAX_SIZE} bytes")
    return text.rstrip("\r\n")


def _path_of(name: str, environ: Mapping[str, str]) -> Path | None:
    if path := environ.get(name + _SUFFIX):
        return Path(path)
    directory = environ.get(_DIRECTORY)
    if directory and _PLAIN_NAME.fullmatch(name):
        credential = Path(directory) / name
        try:
            return credential if stat.S_ISREG(credential.stat().st_mode) else None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _unreadable(credential, error) from None
    return None


def _read(path: Path) -> bytes:
    """Return the content of a regular file, or its beginning; a pipe would block the process."""
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file")
        return file.read(MAX_SIZE + 1)


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _unreadable(path: Path, error: OSError) -> SecretFileError:
    return SecretFileError(f"{path}: {error.strerror or error}")
