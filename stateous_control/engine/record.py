"""Which graph is on record, and which one this control plane serves. Asked once, at the start.

Every graph that a token was ever started on stays on record: tokens go on by theirs, whatever is served now (ADR 15).
"""

from __future__ import annotations

from stateous_control.graph.document import Graph
from stateous_control.graph.loading import load_text
from stateous_control.store.failures import StartRefused
from stateous_control.store.pool import Pool, Session
from stateous_control.store.statements import statements


async def settle_graph(pool: Pool, graph: Graph | None) -> Graph:
    """Put `graph` on record as the one that new tokens start on, and return it; None takes the one on record.

    Raises `StartRefused` where there is none.
    """
    return await pool.run(lambda session: _settle(session, graph))


async def _settle(session: Session, graph: Graph | None) -> Graph:
    record = (await session.fetch(statements.graph_on_record))[0]
    if graph is None:
        if record["graph"] is None:
            raise StartRefused("the database has no workflow on record, so name the workflow file to serve")
        return load_text(record["document"])
    if record["graph"] != graph.checksum:
        await session.fetch(
            statements.record_graph, graph.checksum, graph.structure, graph.workflow, graph.text
        )
        await session.fetch(statements.serve_graph, graph.checksum)
    return graph
