"""Options that the whole suite understands."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--crash-runs",
        type=int,
        default=60,
        help="how often the journal's process is killed in all; thousands take minutes",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the program says now into the golden files, to be reviewed as a change",
    )
