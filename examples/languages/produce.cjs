// Adds jobs with pg: one, many, at most one of a key, and one in a transaction.
const pg = require("pg");

async function main() {
  const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  try {
    // One job. The answer is its id, as a string: it has up to 63 bits.
    const one = await client.query("select jobq.enqueue('resize-node', args => $1::jsonb, queue => 'images') as id", [JSON.stringify({ file: "a.png" })]);
    console.log("job", one.rows[0].id);

    // Many in one statement.
    const jobs = ["b.png", "c.png"].map((file) => ({ kind: "resize-node", args: { file } }));
    await client.query("select id from jobq.enqueue_many($1::jsonb)", [JSON.stringify(jobs)]);

    // At most one unfinished job with this key: the second call returns the first one's id.
    for (let i = 0; i < 2; i++) {
      await client.query("select jobq.enqueue('resize-node', args => $1::jsonb, unique_key => $2)", [JSON.stringify({ file: "d.png" }), "d.png"]);
    }

    // The job exists if the transaction commits, and only then.
    for (const end of ["commit", "rollback"]) {
      await client.query("begin");
      await client.query("insert into public.picture (language, file) values ('node', 'e.png')");
      await client.query("select jobq.enqueue('resize-node', args => $1::jsonb)", [JSON.stringify({ file: "e.png" })]);
      await client.query(end);
    }
  } finally {
    await client.end();
  }
}

main().catch((problem) => {
  console.error(problem.message);
  process.exit(1);
});
