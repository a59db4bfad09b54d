"""What the agent says to the control plane, and how it reads the answers: messages in, values out.

Answers are not trusted (A-53): content type, schema, depth and sizes are checked, unknown fields ignored.
Whatever does not fit is a `PeerViolation` and counts as not answered. Extensions are used by the callers when
`terms` lists them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from stateous_contract import limits
from stateous_contract.codes import Code
from stateous_contract.health import Health, Limits
from stateous_contract.messages import (
    ClaimRequest,
    Grant,
    HeartbeatAnswer,
    HeartbeatRequest,
    Refusal,
    TaskMessage,
)

from stateous_supervisor.agent import calls, reports
from stateous_supervisor.agent.assignment import Identity
from stateous_supervisor.agent.client import AGE_MAX_S, Answer, Client
from stateous_supervisor.agent.faults import Denied, PeerViolation, Refused, TooLarge, Unanswered, Unreachable

CALL_S: Final = 30.0
CLAIM_SLACK_S: Final = 15.0
ANSWER_BYTES_MAX: Final = 2 * limits.BODY_BYTES_MAX
CLAIM_BYTES_MAX: Final = 2 * limits.BATCH_BYTES_MAX
RESULTS_BYTES_MAX: Final = 64 * limits.BODY_BYTES_MAX

T = TypeVar("T")


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What this control plane offers and asks for; the defaults are the baseline's."""

    checksum: str = ""
    features: frozenset[str] = frozenset()
    is_extended: bool = False
    lease_s: float = limits.LEASE_S
    heartbeat_s: float = limits.HEARTBEAT_S
    body_bytes_max: int = limits.BODY_BYTES_MAX
    batch_bytes_max: int = limits.BATCH_BYTES_MAX
    claim_max: int = 1
    heartbeat_max: int = limits.HEARTBEAT_MAX
    messages_max: int = 1
    wait_s: float = 0.0

    def offers(self, feature: str) -> bool:
        return feature in self.features


class Granted(NamedTuple):
    """A grant as a value and as the text it came as."""

    grant: Grant
    raw: Raw


class BadGrant(NamedTuple):
    """A grant that cannot be used. `task` and `attempt` are 0 where they cannot be read."""

    task: int
    attempt: int
    sentence: str


class Result(msgspec.Struct):
    """What became of one message, or of a call: `value` is what a routine is told, `parked` ends its attempt."""

    status: int
    code: str | None = None
    error: str | None = None
    value: Raw | UnsetType = UNSET
    pause: bool = False
    parked: bool = False


class _Results(msgspec.Struct):
    results: list[Result]


class _Grants(msgspec.Struct):
    tasks: list[Raw]


class _Ids(msgspec.Struct):
    task: int = 0
    attempt: int = 0


class _Moved(msgspec.Struct):
    token: str


class _Note(msgspec.Struct):
    text: str
    attempt: int


class _Memory(msgspec.Struct):
    key: str
    value: Raw
    attempt: int


_encode: Final = msgspec.json.Encoder().encode
_grant: Final = msgspec.json.Decoder(Grant)
_grants: Final = msgspec.json.Decoder(_Grants)
_ids: Final = msgspec.json.Decoder(_Ids)
_results: Final = msgspec.json.Decoder(_Results)
_beat: Final = msgspec.json.Decoder(HeartbeatAnswer)
_moved: Final = msgspec.json.Decoder(_Moved)
_health: Final = msgspec.json.Decoder(Health)
_refusal: Final = msgspec.json.Decoder(Refusal)
_FIRST_IDS: Final = re.compile(rb'"task": ?([1-9][0-9]{0,17}),.*?"attempt": ?([1-9][0-9]{0,17}),', re.DOTALL)
_BRACKETS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', re.DOTALL)


class ControlPlane:
    """The control plane that this agent serves. `terms` are those of the last `greet`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.terms = Terms()

    def key(self) -> str | None:
        """Return the key that the next call shows."""
        return self._client.key()

    async def _call(
        self, method: str, path: str, body: bytes | None = None, *, deadline_s: float, bytes_max: int
    ) -> Answer:
        try:
            return await self._client.call(method, path, body, deadline_s=deadline_s, bytes_max=bytes_max)
        except Denied as denied:
            raise _denial(denied) from None

    def drop(self) -> None:
        """Give up all connections; what is in flight is sent again on new ones (A-33)."""
        self._client.drop()

    async def greet(self) -> Terms:
        """Ask what the control plane is and what it offers, and remember it.

        Raises:
            Unanswered, Refused: as every call here.
        """
        answer = await self._call("GET", "/health", deadline_s=CALL_S, bytes_max=ANSWER_BYTES_MAX)
        self.terms = _terms(_read(_health, _accepted(answer)))
        self._client.age_max_s = min(AGE_MAX_S, self.terms.heartbeat_s)
        return self.terms

    async def workflow(self) -> Any:
        """Return the document of the workflow that new tokens start on; whoever looks into it trusts nothing.

        Raises:
            Unanswered, Refused: as every call here.
        """
        answer = await self._call("GET", "/workflow", deadline_s=CALL_S, bytes_max=ANSWER_BYTES_MAX)
        try:
            return json.loads(_accepted(answer).body)
        except (ValueError, RecursionError):
            raise PeerViolation("/workflow answered something that is not understood") from None

    async def claim(self, request: ClaimRequest) -> list[Granted | BadGrant]:
        """Ask for work; an empty list means that there is none."""
        deadline_s = (request.wait or 0.0) + CLAIM_SLACK_S
        try:
            answer = await self._call(
                "POST", "/tasks/claim", _encode(request), deadline_s=deadline_s, bytes_max=CLAIM_BYTES_MAX
            )
        except Denied as denied:
            raise _refused_state(denied) or denied from None
        except TooLarge as error:
            return [_oversized(error)]
        if answer.status == 204:
            return []
        _accepted(answer)
        if request.max is None:
            return [_only_grant(answer)]
        return [_granted(raw) for raw in _read(_grants, answer).tasks]

    async def beat(
        self, identity: Identity, held: Sequence[tuple[int, int]], *, deadline_s: float
    ) -> HeartbeatAnswer:
        """Renew the leases of `held`, pairs of task and attempt."""
        request = HeartbeatRequest(supervisor=identity.supervisor, tasks=sorted({task for task, _ in held}))
        if self.terms.is_extended:
            request.instance = identity.instance
            request.attempts = {str(task): attempt for task, attempt in sorted(held)}
        answer = await self._call(
            "POST", "/tasks/heartbeat", _encode(request), deadline_s=deadline_s, bytes_max=ANSWER_BYTES_MAX
        )
        return _read(_beat, _accepted(answer))

    async def tell(self, identity: Identity, bodies: Sequence[bytes]) -> list[Result]:
        """Deliver many messages in one request (`batch`); each of `bodies` is the JSON of a `TaskMessage`."""
        names = _encode({"supervisor": identity.supervisor, "instance": identity.instance})
        body = names[:-1] + b',"messages":[' + b",".join(bodies) + b"]}"
        answer = await self._call(
            "POST", "/tasks/messages", body, deadline_s=CALL_S, bytes_max=RESULTS_BYTES_MAX
        )
        results = _read(_results, _accepted(answer)).results
        if len(results) != len(bodies):
            raise PeerViolation(f"{len(bodies)} messages were sent and {len(results)} results came back")
        return results

    async def tell_one(self, identity: Identity, message: TaskMessage) -> None:
        """Deliver one message with the baseline's own call for its kind."""
        task, attempt = message.task, message.attempt
        if message.kind == "note":
            await self._store("POST", f"/tasks/{task}/note", _Note(text=message.text or "", attempt=attempt))
        elif message.kind == "memory":
            value = message.value if isinstance(message.value, Raw) else Raw(b"null")
            memory = _Memory(key=message.key or "", value=value, attempt=attempt)
            await self._store("PUT", f"/tasks/{task}/memory", memory)
        else:
            instance = identity.instance if self.terms.is_extended else None
            report = reports.alone(message, identity.supervisor, instance)
            _read(_moved, await self._put("POST", f"/tasks/{task}/report", report))

    async def ask(self, identity: Identity, kind: str, task: int, body: bytes) -> Result:
        """Make a routine's call as a request of its own (`calls.ROWS`); `body` is what `calls.body_of` made."""
        request = calls.request(kind, task, identity, body)
        answer = await self._call(
            request.method, request.path, request.body, deadline_s=CALL_S, bytes_max=CLAIM_BYTES_MAX
        )
        standing = _read(calls.standing, _accepted(answer))
        value = Raw(answer.body) if calls.is_alone(kind) else standing.value
        return Result(answer.status, value=value, pause=standing.pause, parked=standing.is_parked)

    async def _store(self, method: str, path: str, message: msgspec.Struct) -> None:
        answer = await self._put(method, path, message)
        if answer.status != 204:
            raise PeerViolation(f"an answer {answer.status} where 204 is agreed; a proxy may have sent it")

    async def _put(self, method: str, path: str, message: msgspec.Struct) -> Answer:
        answer = await self._call(
            method, path, _encode(message), deadline_s=CALL_S, bytes_max=ANSWER_BYTES_MAX
        )
        return _accepted(answer)


def _accepted(answer: Answer) -> Answer:
    """Return an answer of success; tell a refusal of ours from a page of somebody else's."""
    if answer.status < 400:
        if answer.status != 204 and not answer.is_json:
            raise PeerViolation(f"an answer {answer.status} that is not JSON; a proxy may have sent it")
        return answer
    try:
        refusal = _refusal.decode(answer.body)
    except (msgspec.DecodeError, RecursionError):
        if answer.status == 413:  # a proxy's limit is a limit too
            raise Refused(413, "bad_request", "the request is too large for a proxy on the way") from None
        raise PeerViolation(f"an answer {answer.status} without a code; a proxy may have sent it") from None
    if refusal.code in ("not_found", "method_not_allowed"):
        raise PeerViolation(f"an answer {answer.status} {refusal.code}: this path is not served there")
    raise Refused(answer.status, refusal.code, refusal.error[:2_000])


def _denial(denied: Denied) -> Unanswered:
    """Return what a 401 or 403 is: a 403 without a code is a proxy's word on one request (A-37)."""
    if denied.status != 403:
        return denied
    try:
        _refusal.decode(denied.body)
    except (msgspec.DecodeError, RecursionError):
        sentence = "an answer 403 without a code; a proxy may have sent it"
        return Unreachable(sentence, may_be_ours=True)
    return denied


def _refused_state(denied: Denied) -> Refused | None:
    """Return a refusal of one state, which is none of the key: other states are claimed on (A-15)."""
    try:
        refusal = _refusal.decode(denied.body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if refusal.code != Code.STATE_NOT_ALLOWED.wire:
        return None
    return Refused(403, refusal.code, refusal.error[:2_000])


def _read(decoder: msgspec.json.Decoder[T], answer: Answer) -> T:
    try:
        return decoder.decode(answer.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise PeerViolation(f"an answer {answer.status} that is not understood: {error}") from None


def _granted(raw: Raw) -> Granted | BadGrant:
    try:
        grant = _grant.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _bad(raw, f"the grant is not understood: {error}")
    if not (1 <= grant.task <= limits.TASK_ID_MAX and 1 <= grant.attempt <= limits.TASK_ID_MAX):
        return _bad(raw, f"the grant names task {grant.task} and attempt {grant.attempt}; both start at 1")
    size_bytes = memoryview(raw).nbytes
    if size_bytes > limits.GRANT_BYTES_MAX:
        return _bad(
            raw, f"the grant is {size_bytes:,} bytes of JSON; at most {limits.GRANT_BYTES_MAX:,} are taken"
        )
    if bytes(grant.context)[:1] != b"{" or bytes(grant.memory)[:1] != b"{":
        return _bad(raw, "context and memory of the grant must be objects")
    if is_deeper(raw, limits.DEPTH_MAX + 1):
        return _bad(raw, f"the grant is nested more than {limits.DEPTH_MAX} deep")
    return Granted(grant, raw)


def _only_grant(answer: Answer) -> Granted | BadGrant:
    """Return the grant that is the whole answer; what names no attempt is none, and the claim has no answer (A-11)."""
    found = _granted(Raw(answer.body))
    if isinstance(found, BadGrant) and found.task == 0:
        raise PeerViolation(f"an answer {answer.status} that is no grant: {found.sentence}")
    return found


def _oversized(error: TooLarge) -> BadGrant:
    """Return the grant that such an answer begins with. What else is in it is left to its lease."""
    ids = _FIRST_IDS.search(error.begin)
    if ids is None:
        raise error
    sentence = f"the grant is more than {CLAIM_BYTES_MAX:,} bytes of JSON; at most {limits.GRANT_BYTES_MAX:,} are taken"
    return BadGrant(int(ids[1]), int(ids[2]), sentence)


def _bad(raw: Raw, sentence: str) -> BadGrant:
    try:
        ids = _ids.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return BadGrant(0, 0, sentence)
    is_possible = 1 <= ids.task <= limits.TASK_ID_MAX and 1 <= ids.attempt <= limits.TASK_ID_MAX
    return BadGrant(ids.task, ids.attempt, sentence) if is_possible else BadGrant(0, 0, sentence)


def is_deeper(raw: Raw, depth_max: int) -> bool:
    """Return whether JSON text is nested more than `depth_max` deep; cheap where it has few brackets."""
    text = bytes(raw)
    if text.count(b"{") + text.count(b"[") <= depth_max:
        return False
    depth = 0
    for found in _BRACKETS.finditer(text):
        first = text[found.start()]
        if first in b"[{":
            depth += 1
            if depth > depth_max:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _terms(health: Health) -> Terms:
    if health.protocol is None:
        return Terms(checksum=health.checksum)
    offered = frozenset(health.features)
    given = health.limits or Limits()
    lease_s = health.lease_s if health.lease_s and health.lease_s > 0 else limits.LEASE_S
    beat_s = health.heartbeat_s if health.heartbeat_s and health.heartbeat_s > 0 else lease_s / 4
    can_batch = "batch" in offered
    return Terms(
        checksum=health.checksum,
        features=offered,
        is_extended=True,
        lease_s=lease_s,
        heartbeat_s=min(beat_s, lease_s),
        body_bytes_max=_limit(given.body_bytes_max, limits.BODY_BYTES_MAX),
        batch_bytes_max=_limit(given.batch_bytes_max, limits.BODY_BYTES_MAX),
        claim_max=_limit(given.claim_max, 1) if can_batch else 1,
        heartbeat_max=_limit(given.heartbeat_max, limits.HEARTBEAT_MAX),
        messages_max=_limit(given.messages_max, 1) if can_batch else 1,
        wait_s=max(0.0, min(given.wait_s_max, limits.WAIT_S_MAX)) if "wait" in offered else 0.0,
    )


def _limit(given: int | None, otherwise: int) -> int:
    return given if given is not None and given > 0 else otherwise
