from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ValueFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VALUE_FORMAT_UNSPECIFIED: _ClassVar[ValueFormat]
    VALUE_FORMAT_JSON: _ClassVar[ValueFormat]
    VALUE_FORMAT_MSGPACK: _ClassVar[ValueFormat]

class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STATE_UNSPECIFIED: _ClassVar[State]
    STATE_PENDING: _ClassVar[State]
    STATE_LEASED: _ClassVar[State]
    STATE_FAILED: _ClassVar[State]
    STATE_COMPLETED: _ClassVar[State]
    STATE_DEAD: _ClassVar[State]
VALUE_FORMAT_UNSPECIFIED: ValueFormat
VALUE_FORMAT_JSON: ValueFormat
VALUE_FORMAT_MSGPACK: ValueFormat
STATE_UNSPECIFIED: State
STATE_PENDING: State
STATE_LEASED: State
STATE_FAILED: State
STATE_COMPLETED: State
STATE_DEAD: State

class Value(_message.Message):
    __slots__ = ("json", "msgpack")
    JSON_FIELD_NUMBER: _ClassVar[int]
    MSGPACK_FIELD_NUMBER: _ClassVar[int]
    json: str
    msgpack: bytes
    def __init__(self, json: _Optional[str] = ..., msgpack: _Optional[bytes] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class NewJob(_message.Message):
    __slots__ = ("scope", "kind", "payload", "priority", "run_at_ms", "delay_ms", "max_attempts", "idempotency_key", "headers", "payload_version")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    scope: str
    kind: str
    payload: Value
    priority: int
    run_at_ms: int
    delay_ms: int
    max_attempts: int
    idempotency_key: str
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    payload_version: int
    def __init__(self, scope: _Optional[str] = ..., kind: _Optional[str] = ..., payload: _Optional[_Union[Value, _Mapping]] = ..., priority: _Optional[int] = ..., run_at_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., idempotency_key: _Optional[str] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., payload_version: _Optional[int] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("job_id", "created", "state")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    created: bool
    state: State
    def __init__(self, job_id: _Optional[str] = ..., created: _Optional[bool] = ..., state: _Optional[_Union[State, str]] = ...) -> None: ...

class EnqueueRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: NewJob
    def __init__(self, job: _Optional[_Union[NewJob, _Mapping]] = ...) -> None: ...

class EnqueueResponse(_message.Message):
    __slots__ = ("receipt",)
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    receipt: Receipt
    def __init__(self, receipt: _Optional[_Union[Receipt, _Mapping]] = ...) -> None: ...

class EnqueueBatchRequest(_message.Message):
    __slots__ = ("jobs",)
    JOBS_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[NewJob]
    def __init__(self, jobs: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ...) -> None: ...

class EnqueueBatchResponse(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedCompositeFieldContainer[Receipt]
    def __init__(self, receipts: _Optional[_Iterable[_Union[Receipt, _Mapping]]] = ...) -> None: ...

class PollJobsRequest(_message.Message):
    __slots__ = ("worker", "kinds", "scopes", "max_in_flight", "idle_timeout_ms", "once", "values")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    IDLE_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    ONCE_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    worker: str
    kinds: _containers.RepeatedScalarFieldContainer[str]
    scopes: _containers.RepeatedScalarFieldContainer[str]
    max_in_flight: int
    idle_timeout_ms: int
    once: bool
    values: ValueFormat
    def __init__(self, worker: _Optional[str] = ..., kinds: _Optional[_Iterable[str]] = ..., scopes: _Optional[_Iterable[str]] = ..., max_in_flight: _Optional[int] = ..., idle_timeout_ms: _Optional[int] = ..., once: _Optional[bool] = ..., values: _Optional[_Union[ValueFormat, str]] = ...) -> None: ...

class PollJobsResponse(_message.Message):
    __slots__ = ("leases", "commit_seq", "commit_index")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    COMMIT_SEQ_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    commit_seq: int
    commit_index: int
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., commit_seq: _Optional[int] = ..., commit_index: _Optional[int] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("job_id", "generation", "scope", "kind", "payload", "payload_version", "headers", "attempt", "deadline_ms", "worker", "progress")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    scope: str
    kind: str
    payload: Value
    payload_version: int
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    attempt: int
    deadline_ms: int
    worker: str
    progress: Value
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ..., scope: _Optional[str] = ..., kind: _Optional[str] = ..., payload: _Optional[_Union[Value, _Mapping]] = ..., payload_version: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., attempt: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., worker: _Optional[str] = ..., progress: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class LeaseRef(_message.Message):
    __slots__ = ("job_id", "generation")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    generation: int
    def __init__(self, job_id: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("job_id", "value")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    value: Value
    def __init__(self, job_id: _Optional[str] = ..., value: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("worker", "leases", "progress")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    worker: str
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    progress: _containers.RepeatedCompositeFieldContainer[Progress]
    def __init__(self, worker: _Optional[str] = ..., leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ..., progress: _Optional[_Iterable[_Union[Progress, _Mapping]]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[HeartbeatOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[HeartbeatOutcome, _Mapping]]] = ...) -> None: ...

class HeartbeatOutcome(_message.Message):
    __slots__ = ("job_id", "status", "deadline_ms", "error")
    class Status(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATUS_UNSPECIFIED: _ClassVar[HeartbeatOutcome.Status]
        STATUS_EXTENDED: _ClassVar[HeartbeatOutcome.Status]
        STATUS_AT_LIMIT: _ClassVar[HeartbeatOutcome.Status]
        STATUS_STALE: _ClassVar[HeartbeatOutcome.Status]
        STATUS_NOT_FOUND: _ClassVar[HeartbeatOutcome.Status]
    STATUS_UNSPECIFIED: HeartbeatOutcome.Status
    STATUS_EXTENDED: HeartbeatOutcome.Status
    STATUS_AT_LIMIT: HeartbeatOutcome.Status
    STATUS_STALE: HeartbeatOutcome.Status
    STATUS_NOT_FOUND: HeartbeatOutcome.Status
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    status: HeartbeatOutcome.Status
    deadline_ms: int
    error: Error
    def __init__(self, job_id: _Optional[str] = ..., status: _Optional[_Union[HeartbeatOutcome.Status, str]] = ..., deadline_ms: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "reason", "message", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    code: int
    reason: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, code: _Optional[int] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SubmitRequest(_message.Message):
    __slots__ = ("lease", "complete", "fail")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    FAIL_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    complete: Complete
    fail: Fail
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., complete: _Optional[_Union[Complete, _Mapping]] = ..., fail: _Optional[_Union[Fail, _Mapping]] = ...) -> None: ...

class Complete(_message.Message):
    __slots__ = ("result", "enqueue")
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ENQUEUE_FIELD_NUMBER: _ClassVar[int]
    result: Value
    enqueue: _containers.RepeatedCompositeFieldContainer[NewJob]
    def __init__(self, result: _Optional[_Union[Value, _Mapping]] = ..., enqueue: _Optional[_Iterable[_Union[NewJob, _Mapping]]] = ...) -> None: ...

class Fail(_message.Message):
    __slots__ = ("reason", "retryable")
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    retryable: bool
    def __init__(self, reason: _Optional[str] = ..., retryable: _Optional[bool] = ...) -> None: ...

class SubmitResponse(_message.Message):
    __slots__ = ("state", "receipts")
    STATE_FIELD_NUMBER: _ClassVar[int]
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    state: State
    receipts: _containers.RepeatedCompositeFieldContainer[Receipt]
    def __init__(self, state: _Optional[_Union[State, str]] = ..., receipts: _Optional[_Iterable[_Union[Receipt, _Mapping]]] = ...) -> None: ...

class SubmitBatchRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[SubmitRequest]
    def __init__(self, items: _Optional[_Iterable[_Union[SubmitRequest, _Mapping]]] = ...) -> None: ...

class SubmitBatchResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SubmitResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SubmitResult, _Mapping]]] = ...) -> None: ...

class SubmitResult(_message.Message):
    __slots__ = ("response", "error")
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    response: SubmitResponse
    error: Error
    def __init__(self, response: _Optional[_Union[SubmitResponse, _Mapping]] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("lease", "delay_ms")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    lease: LeaseRef
    delay_ms: int
    def __init__(self, lease: _Optional[_Union[LeaseRef, _Mapping]] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("job_id", "values")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    values: ValueFormat
    def __init__(self, job_id: _Optional[str] = ..., values: _Optional[_Union[ValueFormat, str]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("job_id", "scope", "kind", "state", "priority", "payload", "payload_version", "headers", "created_at_ms", "due_ms", "deadline_ms", "ended_at_ms", "run_at_ms", "attempts", "max_attempts", "generation", "worker", "dead_reason", "result", "progress", "idempotency_key", "events")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_VERSION_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    DEAD_REASON_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    scope: str
    kind: str
    state: State
    priority: int
    payload: Value
    payload_version: int
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    created_at_ms: int
    due_ms: int
    deadline_ms: int
    ended_at_ms: int
    run_at_ms: int
    attempts: int
    max_attempts: int
    generation: int
    worker: str
    dead_reason: str
    result: Value
    progress: Value
    idempotency_key: str
    events: _containers.RepeatedCompositeFieldContainer[Event]
    def __init__(self, job_id: _Optional[str] = ..., scope: _Optional[str] = ..., kind: _Optional[str] = ..., state: _Optional[_Union[State, str]] = ..., priority: _Optional[int] = ..., payload: _Optional[_Union[Value, _Mapping]] = ..., payload_version: _Optional[int] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., created_at_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., deadline_ms: _Optional[int] = ..., ended_at_ms: _Optional[int] = ..., run_at_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., max_attempts: _Optional[int] = ..., generation: _Optional[int] = ..., worker: _Optional[str] = ..., dead_reason: _Optional[str] = ..., result: _Optional[_Union[Value, _Mapping]] = ..., progress: _Optional[_Union[Value, _Mapping]] = ..., idempotency_key: _Optional[str] = ..., events: _Optional[_Iterable[_Union[Event, _Mapping]]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("at_ms", "transition", "detail")
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSITION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    at_ms: int
    transition: str
    detail: Value
    def __init__(self, at_ms: _Optional[int] = ..., transition: _Optional[str] = ..., detail: _Optional[_Union[Value, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("state", "scope", "kind", "limit", "after", "values")
    STATE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    state: State
    scope: str
    kind: str
    limit: int
    after: str
    values: ValueFormat
    def __init__(self, state: _Optional[_Union[State, str]] = ..., scope: _Optional[str] = ..., kind: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ..., values: _Optional[_Union[ValueFormat, str]] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "after")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    after: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., after: _Optional[str] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("job_id",)
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    def __init__(self, job_id: _Optional[str] = ...) -> None: ...

class JobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CountsRequest(_message.Message):
    __slots__ = ("scope", "kind")
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    scope: str
    kind: str
    def __init__(self, scope: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class CountsResponse(_message.Message):
    __slots__ = ("pending", "leased", "failed", "completed", "dead")
    PENDING_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    pending: int
    leased: int
    failed: int
    completed: int
    dead: int
    def __init__(self, pending: _Optional[int] = ..., leased: _Optional[int] = ..., failed: _Optional[int] = ..., completed: _Optional[int] = ..., dead: _Optional[int] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("repair",)
    REPAIR_FIELD_NUMBER: _ClassVar[int]
    repair: bool
    def __init__(self, repair: _Optional[bool] = ...) -> None: ...

class CheckResponse(_message.Message):
    __slots__ = ("rows", "problems", "repaired", "quarantined")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    REPAIRED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    rows: int
    problems: _containers.RepeatedScalarFieldContainer[str]
    repaired: int
    quarantined: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rows: _Optional[int] = ..., problems: _Optional[_Iterable[str]] = ..., repaired: _Optional[int] = ..., quarantined: _Optional[_Iterable[str]] = ...) -> None: ...

class ReapRequest(_message.Message):
    __slots__ = ("limit",)
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    limit: int
    def __init__(self, limit: _Optional[int] = ...) -> None: ...

class ReapResponse(_message.Message):
    __slots__ = ("requeued", "died", "promoted", "purged", "quarantined", "more")
    REQUEUED_FIELD_NUMBER: _ClassVar[int]
    DIED_FIELD_NUMBER: _ClassVar[int]
    PROMOTED_FIELD_NUMBER: _ClassVar[int]
    PURGED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    requeued: int
    died: int
    promoted: int
    purged: int
    quarantined: int
    more: bool
    def __init__(self, requeued: _Optional[int] = ..., died: _Optional[int] = ..., promoted: _Optional[int] = ..., purged: _Optional[int] = ..., quarantined: _Optional[int] = ..., more: _Optional[bool] = ...) -> None: ...

class FindJobsRequest(_message.Message):
    __slots__ = ("prefix", "limit")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    limit: int
    def __init__(self, prefix: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class FindJobsResponse(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListQuarantinedRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQuarantinedResponse(_message.Message):
    __slots__ = ("job_ids",)
    JOB_IDS_FIELD_NUMBER: _ClassVar[int]
    job_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, job_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ExportJobsRequest(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: ValueFormat
    def __init__(self, values: _Optional[_Union[ValueFormat, str]] = ...) -> None: ...

class ExportedJob(_message.Message):
    __slots__ = ("job_id", "job", "marks")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    MARKS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    job: Job
    marks: Marks
    def __init__(self, job_id: _Optional[str] = ..., job: _Optional[_Union[Job, _Mapping]] = ..., marks: _Optional[_Union[Marks, _Mapping]] = ...) -> None: ...

class Marks(_message.Message):
    __slots__ = ("sequence", "token", "leased_at_ms", "purge_at_ms", "lease_end")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LEASED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PURGE_AT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_END_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    token: bytes
    leased_at_ms: int
    purge_at_ms: int
    lease_end: str
    def __init__(self, sequence: _Optional[int] = ..., token: _Optional[bytes] = ..., leased_at_ms: _Optional[int] = ..., purge_at_ms: _Optional[int] = ..., lease_end: _Optional[str] = ...) -> None: ...

class GetServerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetServerResponse(_message.Message):
    __slots__ = ("version", "now_ms", "clock_ahead_ms", "durability", "payload_bytes_max", "result_bytes_max", "reason_chars_max", "lease_batch_max", "message_bytes_max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    RESULT_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    REASON_CHARS_MAX_FIELD_NUMBER: _ClassVar[int]
    LEASE_BATCH_MAX_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    version: str
    now_ms: int
    clock_ahead_ms: int
    durability: str
    payload_bytes_max: int
    result_bytes_max: int
    reason_chars_max: int
    lease_batch_max: int
    message_bytes_max: int
    def __init__(self, version: _Optional[str] = ..., now_ms: _Optional[int] = ..., clock_ahead_ms: _Optional[int] = ..., durability: _Optional[str] = ..., payload_bytes_max: _Optional[int] = ..., result_bytes_max: _Optional[int] = ..., reason_chars_max: _Optional[int] = ..., lease_batch_max: _Optional[int] = ..., message_bytes_max: _Optional[int] = ...) -> None: ...
