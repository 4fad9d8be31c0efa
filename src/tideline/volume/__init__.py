"""A replicated block volume: the log is the volume, a map says where in it a block is.

    volumes.py      what may be asked: read, write, trim, snapshot, clone, vacuum
    machine.py      what a replica does with its log
    orders.py       what is in the log;  state.py, blockmap.py: what replicas agree on
    blockfiles.py   where this replica has its blocks
    single.py       a group of one replica
    serving.py      a node that runs;  service.py, wire.py: what it answers to clients
    client.py       a volume over the network, which survives its leader;  nbd.py: as a disk

docs/internals/volume.md tells how it works.
"""

from tideline.volume.machine import VolumeMachine
from tideline.volume.volumes import Info, Volumes

__all__ = ["Info", "VolumeMachine", "Volumes"]
