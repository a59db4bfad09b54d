"""A certificate that ends under running tasks and is renewed, over real TLS (BH-038, A-49): retried, said, not trusted."""

from __future__ import annotations

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from control.databases import fresh
from programs import AgentProgram, ControlPlaneClient, ControlPlaneProgram, Words, wait_for

from journeys import folders

pytestmark = [pytest.mark.prove, pytest.mark.timeout(200)]

TIMES = ["--lease", "60", "--heartbeat", "1", "--sweep", "0.2", "--retry-delay", "0.1"]
SAYS = "the server's certificate has expired"


class Certificate:
    """The files that a control plane shows its certificate from, and how to exchange what is in them."""

    def __init__(self, place: Path) -> None:
        self.chain, self.key, self.ca = place / "chain.pem", place / "key.pem", place / "ca.pem"
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(self.ca)
        self.renew()

    def renew(self, *, days: int = 9) -> None:
        """Write a certificate that ends in so many days."""
        ends = datetime.now(UTC) + timedelta(days=days)
        leaf = self._ca.issue_cert("127.0.0.1", not_before=ends - timedelta(days=20), not_after=ends)
        self.chain.write_bytes(b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(self.key)


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate(tmp_path)


def trusting_folder(place: Path, url: str, ca: Path) -> Path:
    made = folders.make(place, url)
    with (made / "stateous.yaml").open("a") as config:
        config.write(f"\nca_file: {ca}\n")
    return made


def test_a_certificate_that_ends_in_mid_run_and_is_renewed_costs_no_attempt_bh_038(
    box: Path, certificate: Certificate, postgres: str, migrated_template: str
) -> None:
    """The routine goes on, its outcome waits, the log says what is wrong; an agent that starts meanwhile waits, too."""
    gate = box.parent / "gate"
    tls: Words = ["--tls-cert", certificate.chain, "--tls-key", certificate.key]
    with (
        fresh(postgres, migrated_template) as database,
        ControlPlaneProgram(folders.WORKFLOW, *TIMES, *tls, "--database", database) as program,
    ):
        made = trusting_folder(box, program.url, certificate.ca)
        other = trusting_folder(box.parent / "other", program.url, certificate.ca)
        with (
            ControlPlaneClient(program.url, ca_file=certificate.ca) as plane,
            AgentProgram(made, program.url, "--tasks", "1") as agent,
        ):
            plane.start("ending", gate=str(gate))
            wait_for(lambda: folders.phases(made, "ending"), within_s=20, what="routine that runs")
            certificate.renew(days=-1)
            program.signal(signal.SIGHUP)
            agent.line(SAYS, within_s=20)
            with AgentProgram(other, program.url, name="late") as late:
                late.line(SAYS, within_s=30)
                gate.touch()
                wait_for(lambda: (1, "end") in folders.phases(made, "ending"), within_s=20, what="its end")
                certificate.renew()
                program.signal(signal.SIGHUP)
                late.line("control_plane.reached", within_s=40)
                plane.until("ending", status="completed", within_s=60)
                assert agent.child.poll() is None
                assert late.child.poll() is None
                history = plane.history("ending")

    assert [e["data"]["attempt"] for e in history if e["kind"] == "task_claimed"] == [1, 1]
    assert "task_failed" not in {e["kind"] for e in history}
    assert [phase for _, phase in folders.phases(made, "ending")][:2] == ["begin", "end"]
