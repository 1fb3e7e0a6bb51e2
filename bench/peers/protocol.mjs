// What a peer on Node does for the bench, as a child process: one command with
// options in JSON, answers as lines of JSON. The same as ../child.
//
// A peer is an object with
//   setUp(url)                       make its tables
//   start(url, options, ran)         run jobs, calling ran(n) for each; returns stop()
//   producer(url, connections)       returns { one(n), many(from, count), inTransaction(client, n), end() }
import pg from 'pg'

const url = process.env.DATABASE_URL
const now = () => performance.timeOrigin + performance.now()
const say = (line) => process.stdout.write(JSON.stringify(line) + '\n')
const cpuMicros = () => {
  const { user, system } = process.cpuUsage()
  return user + system
}

/** Runs the command that the bench has given. */
export async function main(peer) {
  const [command, json] = process.argv.slice(2)
  const options = JSON.parse(json)
  await { setup: setUp, work, enqueue, latency, mixed }[command](peer, options)
  // Whatever a peer keeps open; but not before the last line is written: a pipe takes 256 KiB at a time.
  process.stdout.end(() => process.exit(0))
}

async function setUp(peer) {
  await peer.setUp(url)
  say({ end: true })
}

/** Runs jobs from the first word on standard input until its end, and says now and then how many. */
async function work(peer, options) {
  const told = new Promise((resolve) => process.stdin.once('data', resolve))
  const ended = new Promise((resolve) => process.stdin.once('end', resolve))
  say({ up: true })
  await told
  const count = { ran: 0, low: 0, first_ms: 0, last_ms: 0, handler_us: 0 }
  let handled_ms = 0
  const stop = await peer.start(url, options, async (n) => {
    const began = now()
    count.last_ms = began
    if (n < 0) count.low++ // so low priority is told
    if (count.ran++ === 0) count.first_ms = count.last_ms
    if (!options.handler_ms) return
    await new Promise((resolve) => setTimeout(resolve, options.handler_ms))
    handled_ms += now() - began
    count.handler_us = Math.round(handled_ms * 1000)
  })
  say({ ready: true, cpu_us: cpuMicros(), ...count })
  const timer = setInterval(() => say({ cpu_us: cpuMicros(), ...count }), options.report_ms)
  process.stdin.resume()
  await ended
  clearInterval(timer)
  const cpu_us = cpuMicros()
  await stop()
  say({ end: true, cpu_us, ...count })
}

/** Enqueues until the time is over. */
async function enqueue(peer, { seconds, connections, batch }) {
  const producer = await peer.producer(url, connections)
  const cpu = cpuMicros()
  const began = now()
  let jobs = 0
  await Promise.all(Array.from({ length: connections }, async () => {
    while (now() - began < seconds * 1000) {
      if (batch > 1) await producer.many(jobs, batch)
      else await producer.one(jobs)
      jobs += batch
    }
  }))
  say({ end: true, jobs, seconds: (now() - began) / 1000, cpu_us: cpuMicros() - cpu })
  await producer.end()
}

/** Times single jobs from the moment of their commit until they start. In between is what LatencyApart in ../child says. */
async function latency(peer, options) {
  let arrive
  const stop = await peer.start(url, options, async () => arrive(now()))
  const producer = await peer.producer(url, 1)
  const client = new pg.Client(url)
  await client.connect()
  const samples_ms = []
  for (let i = 0; i < options.warm_up + options.samples; i++) {
    await new Promise((resolve) => setTimeout(resolve, 20))
    const arrived = new Promise((resolve) => { arrive = resolve })
    await client.query('begin')
    await producer.inTransaction(client, i)
    const committing = now()
    await client.query('commit')
    const at = await arrived
    if (i >= options.warm_up) samples_ms.push(at - committing)
  }
  say({ end: true, samples_ms })
  await client.end()
  await producer.end()
  await stop()
}

/** Enqueues at a fixed rate, and times each job from when it was due. */
async function mixed(peer, options) {
  const jobs = Math.round(options.rate * options.seconds)
  const samples_ms = []
  let base, finish
  const finished = new Promise((resolve) => { finish = resolve })
  const stop = await peer.start(url, options, async (micros) => {
    if (samples_ms.push(now() - base - micros / 1000) === jobs) finish()
  })
  const producer = await peer.producer(url, options.connections)
  base = now()
  let next = 0
  await Promise.all(Array.from({ length: options.connections }, async () => {
    while (next < jobs) {
      const due_ms = (next++ / options.rate) * 1000
      const wait = base + due_ms - now()
      if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait))
      await producer.one(Math.round(due_ms * 1000))
    }
  }))
  await finished
  say({ end: true, jobs, seconds: (now() - base) / 1000, samples_ms })
  await producer.end()
  await stop()
}
