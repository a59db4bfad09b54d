"""Which graph is on record, and which one this control plane serves. Asked once, at the start."""

from __future__ import annotations

from stateous_control.graph.document import Graph
from stateous_control.graph.loading import load_text
from stateous_control.store.failures import StartRefused
from stateous_control.store.pool import Pool, Session
from stateous_control.store.statements import statements


async def settle_graph(pool: Pool, graph: Graph | None) -> Graph:
    """Put `graph` on record and return it; None takes the one on record.

    Raises `StartRefused` where there is none, and where `graph` has another structure than the one on record while
    tokens are still under way on that.
    """
    return await pool.run(lambda session: _settle(session, graph))


async def _settle(session: Session, graph: Graph | None) -> Graph:
    record = (await session.fetch(statements.graph_on_record))[0]
    if graph is None:
        if record["graph"] is None:
            raise StartRefused("the database has no workflow on record, so name the workflow file to serve")
        return load_text(record["document"])
    if record["graph"] == graph.checksum:
        return graph
    if record["graph"] is not None and record["structure"] != graph.structure:
        rows = await session.fetch(statements.has_live_tokens)
        if rows[0]["is_so"]:
            raise StartRefused(
                f"the workflow {graph.workflow!r} has another structure than {record['workflow']!r} on record, and "
                f"tokens are still active or paused on that: let them end or cancel them first"
            )
    await session.fetch(statements.record_graph, graph.checksum, graph.structure, graph.workflow, graph.text)
    await session.fetch(statements.serve_graph, graph.checksum)
    return graph
