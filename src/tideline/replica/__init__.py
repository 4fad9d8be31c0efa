"""A log that survives machines: Multi-Paxos as a state machine, and where it is stored.

    core.py        the state machine: `Core.step(message or event) -> Effects`
    messages.py    what goes in and comes out
    acceptor.py candidate.py leader.py    its parts;  state.py, outline.py: what they share
    storage.py     what a replica has on disk;  records.py: its bytes
    runner.py      both together, in the right order
    node.py        a replica that runs: `Node`;  machine.py: its user
    group.py       one of its groups: whom it serves;  steps.py: its core and disk under a lock
    network.py     its connections;  link.py: one of them;  wire.py: their bytes
    handshake.py   how nodes prove who they are

docs/internals/replication.md tells the protocol. Only steps.py reads a clock (for ticks), and only
network.py and link.py open sockets.
"""

from tideline.replica.core import Core
from tideline.replica.handshake import TLS
from tideline.replica.machine import Lost, Machine, NotLeader, OutcomeUnknown, Proposal
from tideline.replica.messages import (
    DATA,
    MEMBERS,
    NOBODY,
    NOTHING,
    Ballot,
    Change,
    Compact,
    Damaged,
    Effects,
    Entry,
    Mark,
    Member,
    Members,
    Message,
    Propose,
    Read,
    Tick,
)
from tideline.replica.node import Node
from tideline.replica.outline import Outline
from tideline.replica.runner import Outcome, Runner
from tideline.replica.state import Loaded, Options, Role
from tideline.replica.storage import Storage

__all__ = [
    "DATA", "MEMBERS", "NOBODY", "NOTHING", "TLS", "Ballot", "Change", "Compact", "Core", "Damaged",
    "Effects", "Entry", "Loaded", "Lost", "Machine", "Mark", "Member", "Members", "Message", "Node",
    "NotLeader", "Options", "Outcome", "OutcomeUnknown", "Outline", "Proposal", "Propose", "Read",
    "Role", "Runner", "Storage", "Tick",
]  # fmt: skip
