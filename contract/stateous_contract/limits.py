"""Every limit of the wire, in one place. Names end in their unit."""

from __future__ import annotations

from typing import Final

PROTOCOL: Final = 1

BODY_BYTES_MAX: Final = 1_048_576
BATCH_BYTES_MAX: Final = 8 * 1_048_576
DEPTH_MAX: Final = 64
INTEGER_DIGITS_MAX: Final = 4_300

CLAIM_MAX: Final = 1_000
HEARTBEAT_MAX: Final = 1_000
MESSAGES_MAX: Final = 1_000
STATES_MAX: Final = 1_000
WAIT_S_MAX: Final = 25.0
LIST_MAX: Final = 1_000
LIST_DEFAULT: Final = 100

SUPERVISOR_CHARS_MAX: Final = 256
STATE_CHARS_MAX: Final = 129
REQUEST_PATTERN: Final = r"[A-Za-z0-9._-]{1,64}"
INSTANCE_PATTERN: Final = r"[A-Za-z0-9._-]{1,64}"
TOKEN_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
NOTE_CHARS_MAX: Final = 500
MEMORY_KEY_CHARS_MAX: Final = 128
IDEMPOTENCY_KEY_CHARS_MAX: Final = 256
STEP_CHARS_MAX: Final = 128
SIGNAL_CHARS_MAX: Final = 128
SIGNALS_KEPT_MAX: Final = 1_000
WAIT_PARTS_MAX: Final = 100
ROUTINE_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
RETRIES_MAX: Final = 1_000
VERSIONS_MAX: Final = 100
QUESTION_KEY_CHARS_MAX: Final = 128
QUESTION_SCHEMA_BYTES_MAX: Final = 65_536
CHOICES_MAX: Final = 100
ANSWER_BYTES_MAX: Final = 65_536
DECISIONS_BYTES_MAX: Final = 65_536
SAVED_BYTES_MAX: Final = 262_144
ACTOR_CHARS_MAX: Final = 128
LOG_DEFAULT: Final = 50
TASK_ID_MAX: Final = 2**63 - 1

LEASE_S: Final = 120.0
HEARTBEAT_S: Final = 30.0
SWEEP_S: Final = 1.0
RELEASES_MAX: Final = 3
ERROR_TEXT_CHARS_MAX: Final = 2_000
ERROR_BYTES_MAX: Final = 8_192

DURATION_PATTERN: Final = r"[1-9][0-9]*[smhd]"
DURATION_S_MAX: Final = 3_650 * 86_400
NAME_PATTERN: Final = r"[a-z][a-z0-9_-]{0,63}"
