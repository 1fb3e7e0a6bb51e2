// Makes calls of a peer's own client, for ../inbox: PEER, and the calls as JSON, each a
// list of the method's name and its arguments. Writes what came of each as a line of JSON.
const url = process.env.DATABASE_URL
const [peer, calls] = process.argv.slice(2)

const open = {
  async 'graphile-worker'() {
    const { Logger, makeWorkerUtils } = await import('graphile-worker')
    const utils = await makeWorkerUtils({ connectionString: url, logger: new Logger(() => () => {}) })
    return [utils, () => utils.release()]
  },
  async 'pg-boss'() {
    const { PgBoss } = await import('pg-boss')
    const boss = new PgBoss({ connectionString: url, supervise: false, schedule: false })
    boss.on('error', (error) => { throw error })
    await boss.start()
    return [boss, () => boss.stop({ graceful: false })]
  },
}

const [client, close] = await open[peer]()
for (const [method, ...args] of JSON.parse(calls, (key, value) => (key === 'runAt' ? new Date(value) : value))) {
  const came = await client[method](...args).then((answer) => ({ answer: answer ?? null }), (error) => ({ error: error.message }))
  process.stdout.write(JSON.stringify(came) + '\n')
}
await close()
