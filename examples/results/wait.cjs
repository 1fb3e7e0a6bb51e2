// Waits for jobs with pg: wait.cjs JOB...
const crypto = require("crypto");
const pg = require("pg");

// The job has failed or was cancelled, is not there, or has not ended in time.
class NotCompleted extends Error {}

// Returns the result of a job that has completed, null if it gave none. The client is no
// pool, and nobody else uses it meanwhile. A notification is a hint: the job is looked at
// without one too, after a pause that grows to 10 s.
async function wait(client, job, limit = 60, pause = 1) {
  const me = crypto.randomBytes(8).readBigInt64BE().toString();
  const channel = (await client.query("select jobq.channel('ended') as name")).rows[0].name;
  let heard = false;
  let wake = () => {};
  const hear = () => {
    heard = true;
    wake();
  };
  client.on("notification", hear);
  await client.query(`listen ${channel}`);
  const until = Date.now() + limit * 1000;
  try {
    for (;;) {
      // For a minute from now on, the end of the job is notified. What was before is not: look.
      heard = false;
      await client.query("select jobq.await($1, array[$2::bigint], '{}', '1 minute')", [me, job]);
      const { rows } = await client.query("select state, result, error from jobq.result($1)", [job]);
      if (rows.length === 0) throw new NotCompleted(`there is no job ${job}`);
      const { state, result, error } = rows[0];
      if (state === "completed") return result;
      if (state === "failed" || state === "cancelled") throw new NotCompleted(`job ${job} is ${state}: ${error ?? "no reason given"}`);
      const left = until - Date.now();
      if (left <= 0) throw new NotCompleted(`job ${job} has not ended in ${limit} s: it is ${state}`);
      if (!heard) {
        let timer;
        await new Promise((resolve) => {
          wake = resolve;
          timer = setTimeout(resolve, Math.min(pause * 1000, left));
        });
        clearTimeout(timer);
      }
      pause = Math.min(pause * 2, 10);
    }
  } finally {
    client.off("notification", hear);
    await client.query(`unlisten ${channel}`);
    await client.query("select jobq.await_end($1)", [me]);
  }
}

async function main() {
  const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  for (const job of process.argv.slice(2)) {
    try {
      const result = await wait(client, job, Number(process.env.LIMIT ?? 60), Number(process.env.PAUSE ?? 1));
      console.log(`job ${job}: ${JSON.stringify(result)}`);
    } catch (problem) {
      if (!(problem instanceof NotCompleted)) throw problem;
      console.log(problem.message);
    }
  }
  await client.end();
}

main();
