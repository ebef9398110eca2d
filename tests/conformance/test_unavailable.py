"""What is not built yet is said where it could be mistaken for something else."""

from __future__ import annotations

from pathlib import Path

from tests.support.server import CONFIGURATION, amp_server

TRANSPORT = """
<Transport>
  <Name>fix</Name><Type>tcp</Type><InetAddr>localhost:0</InetAddr><Protocol>fix-session</Protocol>
  <MessageType>fix</MessageType>
</Transport>
"""
ELEMENTS = """
<Admin><InetAddr>localhost:0</InetAddr></Admin>
"""


def test_the_graph_tells_what_starts(tmp_path: Path) -> None:
    """What is not available is listed apart, and dashed in a drawing."""
    path = tmp_path / "config.xml"
    text = CONFIGURATION.format(port=0, elements=ELEMENTS, transports=TRANSPORT, level="info")
    path.write_text(text)

    def drawn(option: str) -> str:
        return amp_server("--verify-config", option, path, cwd=tmp_path).stdout

    text = drawn("--graph")
    started, _, missing = text.partition("not available yet, and not started:\n")
    assert "transport any-tcp" in started
    assert "admin interface localhost:0" in started
    assert "transport fix" in missing
    assert "transport fix" not in started
    assert drawn("--graphviz").count('not available yet", style=dashed];') == 1
