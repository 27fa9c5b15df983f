------------------------------ MODULE Protocol ------------------------------
(***************************************************************************)
(* The protocol of Telha.tla, call by call: every operation that the       *)
(* universe "protocol" of model/telha_model offers in a state, under the   *)
(* name that universe gives it, so that TLC's state graph can be compared  *)
(* with the Python explorer's, edge by edge.                               *)
(*                                                                         *)
(* The Python symbol is "name, job, token"; here it is Name_Token:         *)
(*                                                                         *)
(*   "fail for good, job 1, older"   FailForGood_Older                     *)
(*   "retry, job 1"                  Retry_Job                             *)
(*   "extend, gone"                  Extend_Gone                           *)
(*   "advance 1"                     Advance1_Call                         *)
(*                                                                         *)
(* The single bullet before each body is for TLC, which labels an edge     *)
(* with the innermost definition that is nothing but a name.               *)
(***************************************************************************)
EXTENDS Telha

Older == generation = 2     \* whether a token below the newest exists

(* Of no job in particular.  What carries a wrong argument is refused in every state. *)
EnqueueA_Call                 == /\ Enqueue
EnqueueOversize_Call          == /\ Refused
EnqueueWithRunAtAndDelay_Call == /\ Refused
Lease_Call                    == /\ Lease
LeaseWithoutAWorker_Call      == /\ Refused
Advance1_Call                 == /\ Tick
Reap_Call                     == /\ Reap
Reap0_Call                    == /\ Refused

(* Under the newest token, whether or not it is still current *)
Complete_Current              == /\ Present /\ Complete(generation, "complete")
CompleteOtherwise_Current     == /\ Present /\ Complete(generation, "complete otherwise")
CompleteOversize_Current      == /\ Present /\ Refused
Fail_Current                  == /\ Present /\ Fail(generation, "fail", TRUE)
FailOtherwise_Current         == /\ Present /\ Fail(generation, "fail otherwise", TRUE)
FailForGood_Current           == /\ Present /\ Fail(generation, "fail for good", FALSE)
Extend_Current                == /\ Present /\ Extend(generation)
ExtendWithProgress_Current    == /\ Present /\ Extend(generation)
Release_Current               == /\ Present /\ Release(generation, 0)
ReleaseFor2_Current           == /\ Present /\ Release(generation, 2)
ReleaseForMinus1_Current      == /\ Present /\ Refused

(* Under an older token *)
Complete_Older                == /\ Older  /\ Complete(1, "complete")
CompleteOtherwise_Older       == /\ Older  /\ Complete(1, "complete otherwise")
CompleteOversize_Older        == /\ Older  /\ Refused
Fail_Older                    == /\ Older  /\ Fail(1, "fail", TRUE)
FailOtherwise_Older           == /\ Older  /\ Fail(1, "fail otherwise", TRUE)
FailForGood_Older             == /\ Older  /\ Fail(1, "fail for good", FALSE)
Extend_Older                  == /\ Older  /\ Extend(1)
ExtendWithProgress_Older      == /\ Older  /\ Extend(1)
Release_Older                 == /\ Older  /\ Release(1, 0)
ReleaseFor2_Older             == /\ Older  /\ Release(1, 2)

(* Under a token that was never granted *)
Complete_Never                == /\ Present /\ Complete(generation + 1, "complete")
CompleteOtherwise_Never       == /\ Present /\ Complete(generation + 1, "complete otherwise")
CompleteOversize_Never        == /\ Present /\ Refused
Fail_Never                    == /\ Present /\ Fail(generation + 1, "fail", TRUE)
FailOtherwise_Never           == /\ Present /\ Fail(generation + 1, "fail otherwise", TRUE)
FailForGood_Never             == /\ Present /\ Fail(generation + 1, "fail for good", FALSE)
Extend_Never                  == /\ Present /\ Extend(generation + 1)
ExtendWithProgress_Never      == /\ Present /\ Extend(generation + 1)
Release_Never                 == /\ Present /\ Release(generation + 1, 0)
ReleaseFor2_Never             == /\ Present /\ Release(generation + 1, 2)

(* By an operator *)
Retry_Job                     == /\ Present /\ Retry
Cancel_Job                    == /\ Present /\ Cancel
Discard_Job                   == /\ Present /\ Discard

(* On a job that does not exist, or no more *)
Complete_Gone                 == /\ Refused
CompleteOtherwise_Gone        == /\ Refused
CompleteOversize_Gone         == /\ Refused
Fail_Gone                     == /\ Refused
FailOtherwise_Gone            == /\ Refused
FailForGood_Gone              == /\ Refused
Extend_Gone                   == /\ Refused
ExtendWithProgress_Gone       == /\ Refused
Release_Gone                  == /\ Refused
ReleaseFor2_Gone              == /\ Refused
ReleaseForMinus1_Gone         == /\ Refused
Retry_Gone                    == /\ Refused
Cancel_Gone                   == /\ Refused
Discard_Gone                  == /\ Refused

NextProtocol ==
    \/ EnqueueA_Call
    \/ EnqueueOversize_Call
    \/ EnqueueWithRunAtAndDelay_Call
    \/ Lease_Call
    \/ LeaseWithoutAWorker_Call
    \/ Advance1_Call
    \/ Reap_Call
    \/ Reap0_Call
    \/ Complete_Current
    \/ CompleteOtherwise_Current
    \/ CompleteOversize_Current
    \/ Fail_Current
    \/ FailOtherwise_Current
    \/ FailForGood_Current
    \/ Extend_Current
    \/ ExtendWithProgress_Current
    \/ Release_Current
    \/ ReleaseFor2_Current
    \/ ReleaseForMinus1_Current
    \/ Complete_Older
    \/ CompleteOtherwise_Older
    \/ CompleteOversize_Older
    \/ Fail_Older
    \/ FailOtherwise_Older
    \/ FailForGood_Older
    \/ Extend_Older
    \/ ExtendWithProgress_Older
    \/ Release_Older
    \/ ReleaseFor2_Older
    \/ Complete_Never
    \/ CompleteOtherwise_Never
    \/ CompleteOversize_Never
    \/ Fail_Never
    \/ FailOtherwise_Never
    \/ FailForGood_Never
    \/ Extend_Never
    \/ ExtendWithProgress_Never
    \/ Release_Never
    \/ ReleaseFor2_Never
    \/ Retry_Job
    \/ Cancel_Job
    \/ Discard_Job
    \/ Complete_Gone
    \/ CompleteOtherwise_Gone
    \/ CompleteOversize_Gone
    \/ Fail_Gone
    \/ FailOtherwise_Gone
    \/ FailForGood_Gone
    \/ Extend_Gone
    \/ ExtendWithProgress_Gone
    \/ Release_Gone
    \/ ReleaseFor2_Gone
    \/ ReleaseForMinus1_Gone
    \/ Retry_Gone
    \/ Cancel_Gone
    \/ Discard_Gone

SpecProtocol == Init /\ [][NextProtocol]_vars
=============================================================================
