"""Instances that replicate to one another: real servers, and the network between them."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.replication.topologies import Link, Topology, both
from tests.support.forked import ForkedProcess, Prepare
from tests.support.network import Network
from tests.support.server import RunningServer, free_port, wait_until_started

PAIR: Final = Topology("pair", both(("A", "B")), (("A", "B"),), {"A": "pair", "B": "pair"})
"""Two instances that stand in for each other."""

ORDERS: Final = """
<SOW>
  <Topic>
    <Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
    <FileName>orders.sow</FileName>
  </Topic>
</SOW>
"""
"""A topic with records, which is in the log of every instance."""

_INSTANCE: Final = """
<AMPSConfig>
  <Name>{name}</Name>
  <Group>{group}</Group>
  <Transports>
    <Transport>
      <Name>any-tcp</Name><Type>tcp</Type><Protocol>amps</Protocol>
      <InetAddr>127.0.0.1:{port}</InetAddr><ReuseAddr>true</ReuseAddr>
    </Transport>
    <Transport>
      <Name>replication</Name><Type>amps-replication</Type>
      <InetAddr>127.0.0.1:{replication_port}</InetAddr><ReuseAddr>true</ReuseAddr>
    </Transport>
  </Transports>
  <TransactionLog>
    <JournalDirectory>journal</JournalDirectory>
    <JournalSize>10MB</JournalSize>
    <PreallocatedJournalFiles>{preallocated}</PreallocatedJournalFiles>
    <FlushInterval>{flush}</FlushInterval>
    <Topic><Name>.*</Name><MessageType>json</MessageType></Topic>
  </TransactionLog>
  <Replication>{destinations}</Replication>
  <Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging>
  {elements}
</AMPSConfig>
"""

_DESTINATION: Final = """
    <Destination>
      <Name>{name}</Name>
      <Group>{group}</Group>
      <SyncType>{sync_type}</SyncType>
      {pass_through}
      <AckConflationInterval>10ms</AckConflationInterval>
      <Topic>
        <Name>{topics}</Name><MessageType>json</MessageType>
        <ExcludeValidation>{excluded}</ExcludeValidation>
      </Topic>
      <Transport><Type>amps-replication</Type><InetAddr>127.0.0.1:{port}</InetAddr></Transport>
    </Destination>"""

DOWNGRADE: Final = """
<Actions>
  <Action>
    <On><Module>amps-action-on-schedule</Module><Options><Every>{every}</Every></Options></On>
    <Do>
      <Module>amps-action-do-downgrade-replication</Module>
      <Options><Age>{age}</Age></Options>
    </Do>
    <Do>
      <Module>amps-action-do-upgrade-replication</Module>
      <Options><Age>{age}</Age></Options>
    </Do>
  </Action>
</Actions>
"""
"""For the `elements` of instances: nobody waits for those that have been away for a while."""


class Instance:
    """One instance: its files, and its process while it has one.

    Attributes:
        name: its Name.
        port: where clients connect.
        directory: where it runs.
        lives: how often it has been started.
    """

    def __init__(self, name: str, port: int, directory: Path, configuration: str) -> None:
        self.name = name
        self.port = port
        self.directory = directory
        self.lives = 0
        self._server: RunningServer | None = None
        directory.mkdir(parents=True)
        self._configuration = directory / "config.xml"
        self._configuration.write_text(configuration)

    @property
    def uri(self) -> str:
        """Where clients connect."""
        return f"tcp://127.0.0.1:{self.port}/amps/json"

    @property
    def server(self) -> RunningServer:
        """The process, which has been started."""
        assert self._server is not None, f"{self.name} has not been started"
        return self._server

    @property
    def is_up(self) -> bool:
        """Whether it has a process, frozen or not."""
        return self._server is not None

    def launch(self, prepare: Prepare | None = None) -> None:
        """Start it, without waiting until it serves.

        Args:
            prepare: called in its process first.
        """
        assert not self.is_up, f"{self.name} is up"
        self.lives += 1
        log = self.directory / f"life-{self.lives}.log"
        process = ForkedProcess(self.directory, self._configuration, log, prepare)
        self._server = RunningServer(self.port, process, log)

    def start(self, prepare: Prepare | None = None) -> RunningServer:
        """Start it, and wait until it serves."""
        self.launch(prepare)
        wait_until_started(self.server)
        return self.server

    def kill(self) -> None:
        """End it as a failure would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it as an operator would, and give the exit code."""
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Have it do nothing, as a machine that swaps or is suspended."""
        self.server.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.server.process.send_signal(signal.SIGCONT)

    def lose_disk(self) -> None:
        """Lose all files but the configuration; it must not be up."""
        assert not self.is_up, f"{self.name} is up"
        for path in self.directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path != self._configuration and path.suffix != ".log":
                path.unlink()

    def logs(self) -> str:
        """What it has logged in all its lives."""
        lives = sorted(self.directory.glob("life-*.log"), key=lambda path: path.stat().st_mtime)
        return "".join(f"--- {self.name}, {path.name}\n{path.read_text()}" for path in lives)

    def _end(self, how: signal.Signals) -> int:
        server, self._server = self.server, None
        server.process.send_signal(signal.SIGCONT)
        return server.stop(how)


class Cluster:
    """The instances of a topology, by their names.

    Attributes:
        topology: who replicates to whom.
        instances: those that replicate to one another.
        network: what is between them; clients connect directly.
    """

    def __init__(
        self, topology: Topology, instances: Mapping[str, Instance], network: Network
    ) -> None:
        self.topology = topology
        self.instances = instances
        self.network = network

    def __getitem__(self, name: str) -> Instance:
        return self.instances[name]

    def __iter__(self) -> Iterator[Instance]:
        return iter(self.instances.values())

    def start(self) -> None:
        """Start all instances that are not up, and wait until they serve."""
        down = [instance for instance in self if not instance.is_up]
        for instance in down:
            instance.launch()
        for instance in down:
            wait_until_started(instance.server)

    def uris(self, *names: str) -> list[str]:
        """Where clients of these instances connect, in this order."""
        return [self[name].uri for name in names]

    def logs(self) -> str:
        """What all have logged."""
        return "".join(instance.logs() for instance in self)


@contextmanager
def cluster(
    directory: Path,
    topology: Topology,
    *,
    elements: str = ORDERS,
    of_each: Mapping[str, str] | None = None,
    flush: str = "1ms",
    topics: str = ".*",
    preallocated: int = 2,
) -> Iterator[Cluster]:
    """The instances of a topology, none of which has been started; all are ended in the end.

    Args:
        directory: where each has a directory.
        topology: who replicates to whom.
        elements: further elements of each configuration.
        of_each: elements of one of them, by the instance's name.
        flush: the FlushInterval of the logs.
        topics: the name or expression of what is replicated.
        preallocated: journals that are there in advance, the one in use included.
    """
    ports = {name: (free_port(), free_port()) for name in topology.instances}
    with Network() as network:
        instances = {}
        for name, (port, replication_port) in ports.items():
            configuration = _INSTANCE.format(
                name=name,
                group=topology.groups.get(name, name),
                port=port,
                replication_port=replication_port,
                flush=flush,
                preallocated=preallocated,
                elements=elements + (of_each or {}).get(name, ""),
                destinations="".join(
                    _destination(link, topology, topics, network, ports[link.destination][1])
                    for link in topology.links
                    if link.source == name
                ),
            )
            instances[name] = Instance(name, port, directory / name, configuration)
        try:
            yield Cluster(topology, instances, network)
        finally:
            for instance in instances.values():
                if instance.is_up:
                    instance.kill()
        for instance in instances.values():  # of a thousand runs that went well, nothing is kept
            instance.lose_disk()


def _destination(
    link: Link, topology: Topology, topics: str, network: Network, listens: int
) -> str:
    ways = {(one.source, one.destination) for one in topology.links}
    one_way = {(source, to) for source, to in ways if (to, source) not in ways}
    excluded = ["cascade"] if one_way else []
    if (link.source, link.destination) in one_way:
        excluded.append("replicate")
    return _DESTINATION.format(
        name=link.destination,
        group=topology.groups.get(link.destination, link.destination),
        sync_type="sync" if link.is_sync else "async",
        pass_through="".join(f"<PassThrough>{one}</PassThrough>" for one in link.pass_through),
        topics=topics,
        excluded=",".join(excluded),
        port=network.lead(link.source, link.destination, listens),
    )
