"""Builds once, asks a person, publishes once. Each attempt starts at the first line; what is done is not done again."""

from contract import DeploymentContext, Refusal, Release, events, states
from stateous_supervisor import on_state


@on_state(states.deploying)
def deploying(ctx: DeploymentContext) -> events.deployed | events.declined:
    service = ctx["service"]
    artifact = ctx.step("build", lambda: build(ctx))
    answer = ctx.ask(
        "approve-deploy",
        {"service": service, "artifact": artifact},
        choices=["yes", "no"],
        ttl="2d",
        remind="4h",
    )
    if answer == "no":
        return events.declined(Refusal(artifact=artifact))
    ctx.checkpoint("approved")
    url = ctx.step("publish", lambda: publish(ctx, artifact))
    return events.deployed(Release(artifact=artifact, url=url))


def build(ctx: DeploymentContext) -> str:
    """Build it, for which a real one takes its time."""
    ctx.note(f"building {ctx['service']}")
    return f"{ctx['service']}-1.0.tar"


def publish(ctx: DeploymentContext, artifact: str) -> str:
    """Publish it; the service behind this takes a key, so that the same request twice publishes once."""
    ctx.note(f"publishing {artifact} under the key {ctx.step_key}")
    return f"https://releases.example/{artifact}"
