// A handler that is kept from job to job, in Node, without packages. One job a
// line on standard input, answers on standard output.
import { createHash } from 'node:crypto';
import { createInterface } from 'node:readline';

console.log = console.error; // what is logged is output, and no answer
const say = (message) => process.stdout.write(JSON.stringify(message) + '\n');

for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  if (typeof job.args.text !== 'string') {
    say({ id: job.id, error: 'args have no text', discard: true });
    continue;
  }
  const digest = createHash('sha256').update(job.args.text).digest('hex');
  say({ id: job.id, done: true, result: { digest } });
}
