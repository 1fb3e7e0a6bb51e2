// pg-boss: its defaults, and large batches with LISTEN and without pauses
// while they come back full.
import { PgBoss } from 'pg-boss'
import { main } from './protocol.mjs'

const queue = 'noop'
const tuned = { batchSize: 1000, localConcurrency: 2, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 }

async function open(url, max, { tolerant, ...options } = {}) {
  const boss = new PgBoss({ connectionString: url, max, ...options })
  boss.on('error', (error) => {
    if (!tolerant) throw error
  })
  await boss.start()
  return boss
}

await main({
  async setUp(url) {
    const boss = await open(url, 4)
    for (const name of [queue, 'q1', 'q2', 'q3', 'q4']) await boss.createQueue(name, { notify: true })
    await boss.stop()
  },

  async start(url, options, ran) {
    const boss = await open(url, 10, { tolerant: options.tolerant, ...(options.tuned ? { useListenNotify: true } : {}) })
    const queues = options.queues ? Array.from({ length: options.queues }, (_, i) => `q${i + 1}`) : [queue]
    const settings = { ...(options.tuned ? tuned : {}) }
    // A batch's jobs run at the same time when there are slots for so many, in two batches of half as many.
    if (options.slots) settings.batchSize = Math.max(1, options.slots / queues.length / settings.localConcurrency)
    for (const name of queues) {
      await boss.work(name, settings, async (jobs) => {
        if (options.slots) await Promise.all(jobs.map((job) => ran(job.data.n)))
        else for (const job of jobs) await ran(job.data.n)
      })
    }
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
