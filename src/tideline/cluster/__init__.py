"""Several servers, one database.

    machine.py   what a node does with the values that its cluster agrees on
    node.py      a node: database, machine and replicated log, opened together
    state.py     a database from one node to another
    values.py, applied.py    bytes of values; what a node keeps beside its database
    settings.py  what a node is told

docs/internals/replication.md tells how it works, docs/guide/three-nodes.md how it is run.
"""

from tideline.cluster.node import ClusterNode, create, recover
from tideline.cluster.settings import ClusterSettings

__all__ = ["ClusterNode", "ClusterSettings", "create", "recover"]
