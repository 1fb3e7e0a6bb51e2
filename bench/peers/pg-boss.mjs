// pg-boss: its defaults, and large batches with LISTEN and without pauses
// while they come back full.
import { PgBoss } from 'pg-boss'
import { main } from './protocol.mjs'

const queue = 'noop'
const tuned = { batchSize: 1000, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }

async function open(url, max, options = {}) {
  const boss = new PgBoss({ connectionString: url, max, ...options })
  boss.on('error', (error) => { throw error })
  await boss.start()
  return boss
}

await main({
  async setUp(url) {
    const boss = await open(url, 4)
    await boss.createQueue(queue, { notify: true })
    await boss.stop()
  },

  async start(url, options, ran) {
    const boss = await open(url, 10, options.tuned ? { useListenNotify: true } : {})
    await boss.work(queue, options.tuned ? tuned : {}, async (jobs) => {
      for (const job of jobs) await ran(job.data.n)
    })
    return async () => boss.stop({ graceful: true, timeout: 10_000 })
  },

  async producer(url, connections) {
    const boss = await open(url, connections, { supervise: false, schedule: false })
    const data = (n) => ({ n })
    return {
      one: (n) => boss.send(queue, data(n)),
      many: (from, count) => boss.insert(queue, Array.from({ length: count }, (_, i) => ({ data: data(from + i) }))),
      inTransaction: (client, n) =>
        boss.send(queue, data(n), { db: { executeSql: (text, values) => client.query(text, values) } }),
      end: () => boss.stop({ graceful: false }),
    }
  },
})
