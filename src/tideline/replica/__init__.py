"""A log that survives machines: Multi-Paxos as a state machine, and where it is stored.

    core.py        the state machine: `Core.step(message or event) -> Effects`
    messages.py    what goes in and comes out
    acceptor.py candidate.py leader.py    its parts;  state.py, outline.py: what they share
    storage.py     what a replica has on disk;  records.py: its bytes
    runner.py      both together, in the right order

docs/internals/replication.md tells the protocol; nothing in here reads a clock or opens a socket.
"""

from tideline.replica.core import Core
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
from tideline.replica.outline import Outline
from tideline.replica.runner import Outcome, Runner
from tideline.replica.state import Loaded, Options, Role
from tideline.replica.storage import Storage

__all__ = [
    "DATA", "MEMBERS", "NOBODY", "NOTHING", "Ballot", "Change", "Compact", "Core", "Damaged",
    "Effects", "Entry", "Loaded", "Mark", "Member", "Members", "Message", "Options", "Outcome",
    "Outline", "Propose", "Read", "Role", "Runner", "Storage", "Tick",
]  # fmt: skip
