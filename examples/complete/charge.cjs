// Charges a customer, and completes the job in the same transaction: both or neither.
//
// Needs pg (npm ci). With "die" in the args, the first
// run is killed before or after its commit.
const fs = require("node:fs");
const pg = require("pg");

async function main() {
  const args = JSON.parse(fs.readFileSync(0, "utf8"));
  const { JOBQ_JOB_ID: job, JOBQ_RUN_TOKEN: token, JOBQ_ATTEMPT: attempt, DATABASE_URL: url } = process.env;
  const die = attempt === "1" ? args.die : undefined;

  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query("begin");
    await client.query("insert into public.payment (kind, job) values ('node', $1)", [job]);
    // Throws with the code JQ005 when another run has the job.
    await client.query("select jobq.complete($1, $2, $3::jsonb)", [job, token, JSON.stringify({ paid: true })]);
    if (die === "before") process.kill(process.pid, "SIGKILL");
    await client.query("commit");
  } finally {
    await client.end(); // without a commit, the server rolls back
  }
  if (die === "after") process.kill(process.pid, "SIGKILL");
  console.log("charged");
}

main().catch((problem) => {
  console.error(problem.message);
  process.exit(1);
});
