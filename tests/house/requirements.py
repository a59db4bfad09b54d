"""Every requirement, in a few words of our own. The words are a reminder, not the requirement."""

from __future__ import annotations

PARTS = {
    "S1": "supervision",
    "S2": "durable execution",
    "S3": "tasks and routines",
    "A": "the agent",
}

WORDS = {
    "S1": """
states come from a closed set
a new task is pending and unclaimed
a running task shows who runs it
only a claim starts a task
tasks park at checkpoints only
parking counts as no failure
parking never changes the result
parking repeats without limit
completed, failed and expired can be reached
final states refuse everything
moves that are not drawn are refused
the database knows the states too
long work with a live worker goes on
a task outlives a deploy
the row's lock puts moves in turn
a worker killed half way leaves nothing
readers see whole moves only
nobody acts on what is not committed
silence is noticed and ends the attempt
a beating task is never reaped
idle tasks are never reaped for silence
a reaped task goes on from its checkpoint
the stop reason may be null
parked always has a reason
parked without a reason raises an alarm
reasons are an open vocabulary
our suite catches parking without a reason
asking parks with the question's key
pausing parks as user_paused
expiry keeps the reason it ended
running clears the reason
generation begins at one
visible changes raise the generation
generation only rises, by the server
every read shows the generation
asking is one transaction
asking broken anywhere leaves nothing
what a question's row holds
a question's end comes from its time limit
the log says question_asked
the asker learns an id that works
asker and answerer share the table alone
nothing runs past the first ask
the asking stack unwinds whole
asking is no error in any log
`except Exception` does not catch an ask
the runner catches it and records the park
a parked task uses no slot
asking needs the current attempt
decisions are locked before asking
decisions are durable with the park
any worker goes on from the row
two executors do the same
resume needs no memory of the process
resume needs nothing of the first worker
answering locks a pending question
answering is one transaction
closed questions take no answer
resume follows the committed answer
nobody does more than answer
an answer stands though another path resumed
answered needs a text, by CHECK
answered needs a time, by CHECK
question statuses are closed, by CHECK
one of many answers wins
the body gets exactly what was stored
who answered what and when
a pause only requests
a pause never says paused
the step in work completes
the next checkpoint parks and logs
nothing changes before that checkpoint
a body that ends first completes
an effective pause clears its request
pausing pending, parked and ended tasks
resume goes on behind the checkpoint
resume flips under the lock, then drives
the lock is free while a body runs
the loser of a resume is told
fifty resumes drive once
resume needs a parked task
resume does not stand in for an answer
one of two claims wins
losers always know
tasks and questions expire
only the database's clock decides expiry
expired only after the moment
replicas agree on what is expired
expiry preserves the earlier reason
one log entry for each expiry
expiry decides nothing by default
expired is final
an expired task's question is closed
answer and sweep: one wins, rows agree
every change names its generation
a stale generation changes nothing
a change shows the new generation
compare and change are one step
reading again mends a conflict
the stale screen is told
no generation, no change
workers' traffic leaves people's values fresh
a trigger guards the log
the log is closed to its owner too
TRUNCATE and replica role do not help
sequence numbers are unique in a task
numbers order entries under concurrent writers
every transition leaves an entry
what a page of the log says
the counts are exact
truncated means something is withheld
the newest page, in order
ten thousand entries, one page of fifty
no parameter dumps everything
counts and page share a snapshot
other lists disclose what they withhold
reads compare the owner
changes compare the owner
absent and foreign look the same
never a 403 for foreign ids
ownership holds below the task too
ownership comes before every other check
""",
    "S2": """
waiting lives in no worker
the database holds the workflow
handlers run from the top each time
any worker goes on, at line one
what a checkpoint is keyed by
a passed step gives its stored value
stored values come back equal
the example of the source works
a passed sleep returns at once
an unfinished sleep keeps its deadline
handlers are named and their value counts
steps take any kind of function
non-determinism is found and said
only what is inside a step is kept
the edge where a step repeats
identity is name and occurrence
a renamed step runs again
new steps leave old ones passed
same name and occurrence, same value
loops keep each value apart
incompatible code is a new version
gathered steps replay in any order
a primitive is one transition
suspending gives the lease up
sleepers hold nothing
sleep outlives restarts, same deadline
sleep takes no slot
sleep goes by the database's clock
suspensions spend no attempt
the first checkpoint stands
sleep is one transaction
signals: early, late, or never
awaiting a child suspends likewise
spawning is one transaction and replays
the database keeps the tree
only a direct child is awaited
a cycle is rejected
an ended parent cancels what is below
finished descendants keep their end
a timed-out wait cancels its subtree
siblings and parent go on
an abandoned branch stops
leaves are deleted before parents
no orphan, ever
retention spares the living and their ancestors
cancel acts at a durable boundary
cancel kills no statement
the step in work finishes
no step begins after a cancel
a cancelled task never completes
cancelling an idle task is immediate
versions live side by side
old tasks keep old checkpoints
old tasks keep their retry policy
a fix under one version replays
what a new version is for
workers claim what they registered
late workers are refused
""",
    "S3": """
entering a state queues one task
task and move share a transaction
one task for each visit
the control plane runs no user code
a task is never lost
a claim names its states
the oldest task comes first
only active tokens' tasks are given
claiming raises the attempt
what a grant holds
one holder for an attempt
a claim carries a request id
a repeat brings the same grant
a repeat renews the lease
a repeat claims nothing more
a lost answer loses no task
a new id is a new claim
a lease lasts two minutes
a leased task is nobody else's
beats come each thirty seconds
one beat names all tasks
a beat renews all leases
the answer names what is lost
what makes a task lost
loss is learned with the next beat
an ended lease is a failure
beat against sweep: one or the other
event, waiting or failed, nothing else
an event moves the token
what is checked of an event
None waits for someone outside
waiting holds no lease
an exception is one failed attempt
a wrong return value is a failure
retries bring the next attempt
two retries are three attempts
no retries, one attempt
the last failure is the event error
a transition on error is taken
without one the token fails
what a report carries and brings
context and move commit together
an old attempt is refused
late reports never land elsewhere
repeats, contradictions, and unknown tasks
the public words for statuses
queued becomes claimed
claimed becomes done
claimed becomes waiting
waiting becomes done from outside
a failure queues again
the last failure ends
leaving cancels a queued task
leaving cancels a claimed task
leaving cancels a waiting task
a waiting task can fail
a cancelled token cancels its task
final statuses stay
outside events move busy tokens
the state's own event: done
another event: cancelled
attempts share the task's number
routines are found by their state
def and async def both work
async def runs on the loop
def runs in a thread
never more routines than `tasks`
what a routine's argument gives
a lost async routine is cancelled
a lost def runs on, unheard
one run for each attempt
typed events carry their payload
an unhandled exception fails the token
history names a silent supervisor
history tells the next try
history names who took over
notes and memory
steering: pause holds and gives back time
starting queues the first task
token ids are text, task ids numbers
""",
    "A": """
what stateous.yaml holds
flag, environment, file, default
a bad file is one sentence
which files of a folder load
one broken file stops only itself
clashes and unknown states are refused
a read-only folder is enough
init and contract write typed folders
another contract stops claims only
both import names work
a request id outlives the agent
never more claimed than free
idle costs one waiting request
free slots fill at once
one state's refusals stop no other
routines on loop and threads
what ctx offers
what a routine may return
every exception becomes a failure
a timeout ends and fails
output never harms the link
a blocked loop is named
a dead host is replaced
isolation keeps neighbours whole
another interpreter may host
secrets stay in the agent
one beat for all, none for none
beats keep time whatever runs
a failed beat is tried within the lease
what happens to a lost attempt
a late loss spares newer attempts
a fence stops before the lease ends
clock jumps and suspends
swallowed cancellation is no shelter
an outcome is on disk first
messages keep their order
which answers are tried again
a refusal is final
what is too large is not sent
a damaged record is set aside
a full disk stops claims alone
two agents: folder no, name yes
the first signal drains
the second signal ends
reload takes a good folder, keeps otherwise
a killed agent's grants are settled
user code cannot undo the shelter
nothing outlives the agent
one client, verified, proxied as told
moved addresses and closed connections
refused keys: claims stop, beats go on
a key never shows
answers are not trusted
the unit that service writes
what systemd is told
doctor checks and mends
status without a network
log events and their keys
metrics when asked for
commands and exit codes
routines are testable without a network
idle is cheap, and work leaves nothing
output is kept by attempt, in bounds
a missing feature fails once, named
which platforms
""",
}

LINES = {
    f"{part}-{number:02d}": words
    for part, text in WORDS.items()
    for number, words in enumerate(text.strip().splitlines(), 1)
}
