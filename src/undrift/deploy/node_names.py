"""Which node may speak for which site. The operator registers every site's key under the site's name
(`flwr supernode register KEY.pub --name SITE`), and Flower gives a key always the same node id.

- A node whose key has no name is refused, unless the operator waives this (`unnamed_nodes = true` in `[deploy]`).
- A named node may only speak for the site of its name.
- If two keys have one name, the node that joined first keeps the name until the server is started again, connected or
  not: a second key must not take a site over while the first one is away. After a key was rotated, start the run again.
- Unnamed nodes have a new id after every start. So the first one keeps the site only while it is connected.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from undrift.contract.declare import Malformed


@dataclass(frozen=True)
class Connection:
    """A connected node: the name it was registered under ("" without one) and the time of its connection."""

    name: str
    since: str


@dataclass
class NodeNames:
    unnamed_nodes: bool
    holders: dict[str, int] = field(default_factory=dict)  # the node of a named key that joined first, by site

    def check(self, site: str, node: int, connection: Connection, connected: int | None) -> None:
        """Refuse a node that may not speak for a site. `connected` is the node that speaks for it now."""
        if connection.name and connection.name != site:
            raise Malformed(f"its key is registered for {connection.name}, not for {site}")
        if not connection.name and not self.unnamed_nodes:
            raise Malformed(
                f"the key of node {node} is registered without a name; register it with --name {site}, "
                "or set unnamed_nodes = true in run.toml"
            )
        holder = self.holders.get(site, connected)
        if holder is not None and holder != node:
            raise Malformed(
                f"node {node} claims {site}, and node {holder} speaks for it; unregister the one that is not {site}'s "
                "(flwr supernode unregister), then start the run again"
            )

    def accept(self, site: str, node: int, connection: Connection) -> None:
        if connection.name:
            self.holders[site] = node
