-------------------------------- MODULE Telha --------------------------------
(***************************************************************************)
(* The lease protocol of the Telha job queue, for one job.                 *)
(*                                                                         *)
(* A queue holds jobs.  A worker asks for a lease, runs the job, and       *)
(* answers: complete or fail.  It can also extend the lease (a heartbeat), *)
(* or give it back (release).  A worker that falls silent loses its lease: *)
(* a sweep reaps it after the deadline and the job may run again.  Every   *)
(* failure and every expiry counts as an attempt; when the attempts are    *)
(* used up the job is dead.  An operator can cancel a living job, retry a  *)
(* dead one, and discard one that has ended.                               *)
(*                                                                         *)
(* THE FENCE.  A worker that was only slow may wake up long after its      *)
(* lease was reaped and granted to somebody else.  So every grant raises   *)
(* the job's generation, the lease carries it as a token, and what arrives *)
(* under any other generation changes nothing.  A lease is *current* while *)
(* the job is leased under the same generation.  The deadline plays no     *)
(* part in that: until the sweep has run, a late worker may still answer.  *)
(*                                                                         *)
(* REPEATS.  A worker whose answer was accepted but whose connection broke *)
(* says it again.  The newest accepted submit is recorded; the same words  *)
(* under the same generation get the recorded reply and change nothing.    *)
(*                                                                         *)
(* HOW THE STATE STAYS FINITE, without cutting anything off:               *)
(*                                                                         *)
(*  - There is no clock.  `due` and `deadline` say how far ahead a time    *)
(*    is; a tick brings them nearer.  0 is now, -1 is any time past (how   *)
(*    long past makes no difference), Never is no such time.               *)
(*                                                                         *)
(*  - Generations rise for ever, but a token can only be compared with the *)
(*    job's generation, and with that of the recorded submit.  So they are *)
(*    renumbered at each grant: 0 is no lease yet, 1 the first, 2 every    *)
(*    later one, and below 2 the number 1 stands for whatever came before. *)
(*                                                                         *)
(* The same protocol is written in Python in model/telha_model, which is   *)
(* the specification; Protocol.tla names every call that its universe      *)
(* "protocol" offers, and scripts/tla compares the two state graphs edge   *)
(* by edge.                                                                *)
(***************************************************************************)
EXTENDS Integers

CONSTANTS
    Ttl,            \* how long a lease lasts unless it is extended
    MaxAttempts,    \* how many leases may end in failure or expiry
    BackoffBase,    \* the pause after the n-th of them is
    BackoffFactor,  \*   Base * Factor^(n-1), but at most Cap
    BackoffCap,
    MaxAge,         \* no lease is extended beyond this age; 0: no such limit
    Fenced,         \* FALSE is a bug: a submit ignores the generation
    Swept,          \* FALSE is a bug: nobody reaps
    History         \* whether the last two variables are kept

Never == 1000       \* a time that does not come
Past  == -1         \* any time that has passed

VARIABLES
    state,          \* "absent", or one of the job's five states
    attempts,       \* leases that ended in failure or expiry, since the last retry
    generation,     \* of the newest lease: 0, 1, or 2 for every later one
    due,            \* when the job may run; of a leased one, when it might
    deadline,       \* when the lease expires
    room,           \* until when it can be extended at most
    lastEnd,        \* how the newest lease ended
    record,         \* the newest accepted submit: what, under which generation, the reply
    ends,           \* history: how often the newest lease has ended
    landed          \* history: whether a token that was not current ever changed anything

vars == <<state, attempts, generation, due, deadline, room, lastEnd, record, ends, landed>>

Living == {"pending", "leased", "failed"}
Ended  == {"completed", "dead"}

Completions == {"complete", "complete otherwise"}
Failures    == {"fail", "fail otherwise", "fail for good"}
Nothing     == [what |-> "none", generation |-> 0, reply |-> "none"]

Min(a, b) == IF a < b THEN a ELSE b
Max(a, b) == IF a > b THEN a ELSE b
Nearer(t) == IF t = Never THEN Never ELSE Max(t - 1, Past)

Backoff(n) == Min(BackoffCap, BackoffBase * BackoffFactor^(n - 1))

Present == state # "absent"
Ready   == state \in {"pending", "failed"} /\ due =< 0
Expired == state = "leased" /\ deadline =< 0

-----------------------------------------------------------------------------
(* Pieces of actions *)

Refused == UNCHANGED vars   \* also: a repeat, or nothing to do

NoHistory == UNCHANGED <<ends, landed>>

(* The newest lease ends, by a call under `token`. *)
LeaseEnds(token) ==
    /\ ends' = IF History THEN Min(ends + 1, 2) ELSE ends
    /\ landed' = (landed \/ (History /\ token # generation))

(* The job's new place after its lease ended, or at its end.  What belongs *)
(* to a lease is gone.                                                     *)
Becomes(s, n, d) ==
    /\ state' = s
    /\ attempts' = n
    /\ due' = d
    /\ deadline' = Never
    /\ room' = Never
    /\ UNCHANGED generation

(* A lease that ran out: an attempt counts, and the last one is the end.   *)
Expire(token) ==
    /\ IF attempts + 1 >= MaxAttempts
       THEN Becomes("dead", attempts + 1, Never)
       ELSE Becomes("pending", attempts + 1, Backoff(attempts + 1))
    /\ lastEnd' = "reaped"
    /\ UNCHANGED record
    /\ LeaseEnds(token)

-----------------------------------------------------------------------------
(* What a worker does *)

IsCurrent(token) == state = "leased" /\ (Fenced => token = generation)

IsRepeat(token, what) == record.what = what /\ record.generation = token

Recorded(token, what, reply) ==
    record' = [what |-> what, generation |-> token, reply |-> reply]

(* A due job is granted, pending or failed.  Renumbering: whatever was     *)
(* recorded, was recorded under an earlier generation than the new one.    *)
Lease ==
    IF Ready
    THEN /\ state' = "leased"
         /\ generation' = Min(generation + 1, 2)
         /\ deadline' = Ttl
         /\ room' = IF MaxAge = 0 THEN Never ELSE MaxAge
         /\ lastEnd' = "none"
         /\ record' = IF record = Nothing THEN Nothing ELSE [record EXCEPT !.generation = 1]
         /\ ends' = 0
         /\ UNCHANGED <<attempts, due, landed>>
    ELSE Refused

Complete(token, what) ==
    IF ~IsRepeat(token, what) /\ IsCurrent(token)
    THEN /\ Becomes("completed", attempts, Never)
         /\ lastEnd' = "completed"
         /\ Recorded(token, what, "completed")
         /\ LeaseEnds(token)
    ELSE Refused

Fail(token, what, retryable) ==
    IF ~IsRepeat(token, what) /\ IsCurrent(token)
    THEN LET dies == ~retryable \/ attempts + 1 >= MaxAttempts
         IN  /\ IF dies
                THEN Becomes("dead", attempts + 1, Never)
                ELSE Becomes("failed", attempts + 1, Backoff(attempts + 1))
             /\ lastEnd' = "failed"
             /\ Recorded(token, what, IF dies THEN "dead" ELSE "failed")
             /\ LeaseEnds(token)
    ELSE Refused

(* A heartbeat.  It never moves a deadline back, nor beyond the room left. *)
Extend(token) ==
    IF IsCurrent(token)
    THEN /\ deadline' = Max(deadline, Min(Ttl, room))
         /\ landed' = (landed \/ (History /\ token # generation))
         /\ UNCHANGED <<state, attempts, generation, due, room, lastEnd, record, ends>>
    ELSE Refused

(* Giving back counts no attempt and keeps the place, or a later one.      *)
(* After the deadline it is what the sweep would have done.                *)
Release(token, delay) ==
    IF ~IsCurrent(token) THEN Refused
    ELSE IF Expired THEN Expire(token)
    ELSE /\ Becomes("pending", attempts, IF delay > 0 THEN Max(due, delay) ELSE due)
         /\ lastEnd' = "released"
         /\ UNCHANGED record
         /\ LeaseEnds(token)

-----------------------------------------------------------------------------
(* What the sweep, the clock, callers and operators do *)

Reap ==
    CASE Swept /\ Expired -> Expire(generation)
      [] Swept /\ state = "failed" /\ due =< 0 ->     \* promotion: the back-off is over
            /\ state' = "pending"
            /\ UNCHANGED <<attempts, generation, due, deadline, room, lastEnd, record, ends, landed>>
      [] OTHER -> Refused

Tick ==
    /\ due' = Nearer(due)
    /\ deadline' = Nearer(deadline)
    /\ room' = IF room = Never THEN Never ELSE Max(room - 1, 0)
    /\ UNCHANGED <<state, attempts, generation, lastEnd, record, ends, landed>>

Enqueue ==          \* there is room for one job
    /\ ~Present
    /\ state' = "pending"
    /\ due' = 0
    /\ UNCHANGED <<attempts, generation, deadline, room, lastEnd, record, ends, landed>>

Cancel ==
    IF state \in Living
    THEN /\ Becomes("dead", attempts, Never)
         /\ lastEnd' = IF state = "leased" THEN "cancelled" ELSE lastEnd
         /\ UNCHANGED record
         /\ IF state = "leased" THEN LeaseEnds(generation) ELSE NoHistory
    ELSE Refused

Retry ==            \* a fresh budget of attempts, but never a lower generation
    IF state = "dead"
    THEN Becomes("pending", 0, 0) /\ UNCHANGED <<lastEnd, record, ends, landed>>
    ELSE Refused

Discard ==
    IF state \in Ended
    THEN /\ state' = "absent"
         /\ attempts' = 0
         /\ generation' = 0
         /\ due' = Never
         /\ deadline' = Never
         /\ room' = Never
         /\ lastEnd' = "none"
         /\ record' = Nothing
         /\ ends' = 0
         /\ UNCHANGED landed
    ELSE Refused

-----------------------------------------------------------------------------
(* The whole *)

Init ==
    /\ state = "absent"
    /\ attempts = 0
    /\ generation = 0
    /\ due = Never
    /\ deadline = Never
    /\ room = Never
    /\ lastEnd = "none"
    /\ record = Nothing
    /\ ends = 0
    /\ landed = FALSE

(* The tokens in play: the newest one, an older one if there is any, and   *)
(* one that was never granted.                                             *)
Tokens == {generation, generation + 1} \cup (IF generation = 2 THEN {1} ELSE {})

Heartbeat == \E token \in Tokens : Extend(token)
GivenBack == \E token \in Tokens, delay \in {0, 2} : Release(token, delay)

Submit ==
    \E token \in Tokens :
        \/ \E what \in Completions : Complete(token, what)
        \/ \E what \in Failures : Fail(token, what, what # "fail for good")

Next ==
    \/ Enqueue
    \/ Lease \/ Tick \/ Reap
    \/ Present /\ (Submit \/ Heartbeat \/ GivenBack \/ Cancel \/ Retry \/ Discard)

Spec == Init /\ [][Next]_vars

(* Time passes, the sweep runs, and somebody polls, again and again.       *)
(* Nothing is asked of the worker that holds the lease.                    *)
FairSpec == Spec /\ WF_vars(Tick) /\ WF_vars(Reap) /\ WF_vars(Lease)

-----------------------------------------------------------------------------
(* Safety *)

TypeOK ==
    /\ state \in Living \cup Ended \cup {"absent"}
    /\ attempts \in 0..MaxAttempts
    /\ generation \in 0..2
    /\ due \in Past..Max(BackoffCap, 2) \cup {Never}
    /\ deadline \in Past..Ttl \cup {Never}
    /\ room \in 0..MaxAge \cup {Never}
    /\ lastEnd \in {"none", "completed", "failed", "released", "reaped", "cancelled"}
    /\ record \in {Nothing} \cup
          [what : Completions \cup Failures, generation : 1..2, reply : {"completed", "failed", "dead"}]
    /\ ends \in 0..2
    /\ landed \in BOOLEAN

(* The last attempt leaves no job in limbo.                                *)
AttemptsWithinBudget == state \in Living => attempts < MaxAttempts

(* Each state has the times that belong to it, and no other.               *)
TimesFit ==
    /\ (state \in Living) <=> (due # Never)
    /\ (state = "leased") <=> (deadline # Never)
    /\ state = "leased" => lastEnd = "none" /\ due =< 0

(* A completed job was completed by its newest lease, and that is on       *)
(* record.                                                                 *)
CompletedByNewest ==
    state = "completed" =>
        record.what \in Completions /\ record.generation = generation /\ lastEnd = "completed"

(* The two that need History.  The fence: a token that is not current      *)
(* changes nothing; and a lease ends once.                                 *)
StaleNeverLands == ~landed
LeaseEndsOnce   == ends =< 1

NoEarlyRun == [][state # "leased" /\ state' = "leased" => due =< 0]_vars

AttemptsExact ==
    [][attempts' # attempts =>
         \/ attempts' = attempts + 1 /\ state = "leased" /\ lastEnd' \in {"failed", "reaped"}
         \/ attempts' = 0 /\ state \in Ended]_vars

GenerationsRise == [][state' = "absent" \/ generation' >= generation]_vars

-----------------------------------------------------------------------------
(* Liveness *)

Ends == state \in Living ~> state \notin Living

(* What workers promise.  A lease that is neither extended for ever nor    *)
(* given back for ever is answered, or falls silent.                       *)
HeartbeatsEnd  == []<>(state # "leased") \/ <>[][~Heartbeat]_vars
GivingBackEnds == []<>(state \notin Living) \/ <>[][~GivenBack]_vars

EveryJobEnds == HeartbeatsEnd /\ GivingBackEnds => Ends

(* This one is false without MaxAge: the worker that extends for ever      *)
(* holds its job for ever.  With MaxAge it is true.                        *)
EveryJobEndsWhateverHeartbeats == GivingBackEnds => Ends
=============================================================================
