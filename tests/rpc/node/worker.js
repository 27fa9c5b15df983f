// A producer and a worker in Node that know nothing but jobs.proto: node worker.js HOST:PORT PROTO SCOPE
//
// Enqueues a job, polls for it, sends a heartbeat, gives the job back, polls for it again, submits under the old lease
// (stale) and under the new one, twice. Prints what each was answered as one JSON object.
"use strict";

const path = require("node:path");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");
const protobuf = require("protobufjs");

const [target, proto, scope] = process.argv.slice(2);
const options = { keepCase: true, longs: String, enums: String, defaults: true };
const { Jobs } = grpc.loadPackageDefinition(loader.loadSync(proto, options)).telha.jobs.v1;
const rpc = protobuf.loadSync(path.join(__dirname, "status.proto")).lookup("google.rpc");
const jobs = new Jobs(target, grpc.credentials.createInsecure());
const BOUND_MS = 15_000;

const json = (value) => ({ json: JSON.stringify(value) });
const refOf = ({ job_id, generation }) => ({ job_id, generation });

/** A unary call as a promise: the answer and the commit that it covers. */
function call(method, request) {
  return new Promise((resolve, reject) => {
    let trailers = new grpc.Metadata();
    const sent = jobs[method](request, { deadline: Date.now() + BOUND_MS }, (error, answer) =>
      // The answer comes before the status.
      error ? reject(error) : setImmediate(() => resolve({ answer, commit: trailers.get("telha-commit-seq")[0] })),
    );
    sent.on("status", (status) => (trailers = status.metadata));
  });
}

/** The refusal that a call must end with: its status, and the details that came with it. */
async function refusal(method, request) {
  try {
    await call(method, request);
  } catch (error) {
    const [raw] = error.metadata.get("grpc-status-details-bin");
    const status = rpc.lookupType("Status").decode(raw);
    const info = rpc.lookupType("ErrorInfo").decode(status.details[0].value);
    return {
      status: grpc.status[error.code],
      type: status.details[0].type_url,
      reason: info.reason,
      domain: info.domain,
      metadata: info.metadata,
    };
  }
  throw new Error(`${method} was answered, but had to be refused`);
}

/** The first leases that a poll grants; then the stream is left. */
function poll(request) {
  return new Promise((resolve, reject) => {
    const stream = jobs.PollJobs(request, { deadline: Date.now() + BOUND_MS });
    stream.on("data", (message) => {
      stream.on("end", () => resolve(message.leases));
    });
    stream.on("error", reject);
  });
}

async function main() {
  const told = {};
  const job = { scope, kind: "ingest:pdf", payload: json({ path: "a.pdf" }), idempotency_key: "a.pdf" };
  const added = await call("Enqueue", { job });
  told.enqueued = { ...added.answer.receipt, commit: added.commit };
  told.again = (await call("Enqueue", { job })).answer.receipt;

  const wanted = { worker: "node", kinds: ["ingest:*"], once: true };
  const [first] = await poll(wanted);
  told.leased = { ...refOf(first), attempt: first.attempt, payload: JSON.parse(first.payload.json) };

  const progress = [{ job_id: first.job_id, value: json({ page: 1 }) }];
  const beat = await call("Heartbeat", { worker: "node", leases: [refOf(first)], progress });
  told.heartbeat = beat.answer.outcomes.map(({ status, deadline_ms }) => ({ status, deadline_ms }));

  await call("Release", { lease: refOf(first) });
  const [second] = await poll(wanted);
  told.leasedAgain = { ...refOf(second), attempt: second.attempt, progress: JSON.parse(second.progress.json) };

  told.stale = await refusal("Submit", { lease: refOf(first), complete: { result: json({ pages: 1 }) } });
  const submit = { lease: refOf(second), complete: { result: json({ pages: 12 }) } };
  told.submitted = (await call("Submit", submit)).answer.state;
  told.repeated = (await call("Submit", submit)).answer.state;
  told.late = await refusal("Submit", { lease: refOf(second), complete: { result: json({ pages: 13 }) } });
  told.wrong = await refusal("Enqueue", { job: { ...job, kind: "no kind" } });
  console.log(JSON.stringify(told));
}

main()
  .catch((error) => {
    console.error(error);
    process.exitCode = 1;
  })
  .finally(() => jobs.close());
