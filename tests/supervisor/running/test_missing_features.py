"""A routine that uses what its control plane lacks, with a real agent and a control plane that speaks the baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import FakeControlPlane, serving
from supervisor.folders import PLAIN, make_folder
from supervisor.running.managed import Managed, wait_for

ASKING = PLAIN.replace("    return events", "    await ctx.{call}\n    return events")


@pytest.mark.parametrize(
    ("call", "feature"),
    [("ask('go')", "questions"), ("step('a', lambda: 1)", "checkpoints"), ("checkpoint('a')", "questions")],
)
def test_it_fails_once_with_a_sentence_that_names_the_feature_a_64(
    call: str, feature: str, tmp_path: Path
) -> None:
    fake = FakeControlPlane(features=())
    with serving(fake) as url:
        text = ASKING.replace("{call}", call)
        folder = make_folder(tmp_path / "folder", url=url, checksum=fake.graph.checksum, plain=text)
        managed = Managed(fake, folder)
        managed.start()
        with managed.agent():
            wait_for(lambda: managed.events("task.finished"), 30.0)
        managed.manager.door.close()

    (failed,) = managed.events("task.failed")
    name = call.partition("(")[0]
    sentence = f"ctx.{name} needs the feature '{feature}', which this control plane does not offer"
    assert failed["error"] == f"FeatureMissing: {sentence}"
    reports = [heard.body for heard in fake.heard if heard.path.endswith("/report")]
    assert [(report["kind"], report["error"]) for report in reports] == [("failed", failed["error"])]
