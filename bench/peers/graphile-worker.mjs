// graphile-worker: its defaults, and the settings of its own performance
// tests and documentation ("Performance": local queue, batched completion).
import { Logger, makeWorkerUtils, run, runMigrations } from 'graphile-worker'
import pg from 'pg'
import { main } from './protocol.mjs'

const logger = new Logger(() => () => {})
const tuned = {
  concurrentJobs: 24,
  maxPoolSize: 25,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
}

await main({
  async setUp(url) {
    await runMigrations({ connectionString: url, logger })
    const utils = await makeWorkerUtils({ connectionString: url, logger })
    // The bench fills the table by SQL, which needs the task's row.
    await utils.withPgClient((client) =>
      client.query("insert into graphile_worker._private_tasks (identifier) values ('noop') on conflict do nothing"))
    await utils.release()
  },

  async start(url, options, ran) {
    const settings = { ...(options.tuned ? tuned : {}), ...(options.slots ? { concurrentJobs: options.slots } : {}) }
    const preset = { worker: { connectionString: url, ...settings } }
    const runner = await run({ preset, logger, noHandleSignals: true, taskList: { noop: ({ n }) => ran(n) } })
    return async () => runner.stop()
  },

  async producer(url, connections) {
    const pgPool = new pg.Pool({ connectionString: url, max: connections })
    pgPool.on('error', (error) => { throw error })
    pgPool.on('connect', (client) => client.on('error', (error) => { throw error }))
    const utils = await makeWorkerUtils({ pgPool, logger })
    return {
      one: (n) => utils.addJob('noop', { n }),
      many: (from, count) =>
        utils.addJobs(Array.from({ length: count }, (_, i) => ({ identifier: 'noop', payload: { n: from + i } }))),
      inTransaction: (client, n) => client.query("select from graphile_worker.add_job('noop', $1::json)", [{ n }]),
      async end() {
        await utils.release()
        await pgPool.end()
      },
    }
  },
})
