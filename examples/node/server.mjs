// A handler behind HTTP, in Node, without packages. Jobs are posted to it.
import { createServer } from 'node:http';

const newest = new Map(); // job id -> the greatest lease token seen
const sentAway = new Set(); // job ids that were told to come again

createServer(async (request, response) => {
  const answer = (status, body, headers = {}) => {
    response.writeHead(status, { 'Content-Type': 'application/json', ...headers });
    response.end(JSON.stringify(body));
  };
  let text = '';
  for await (const chunk of request) text += chunk;
  const job = JSON.parse(text);
  // A worker that has lost the job without knowing comes with a smaller token.
  if (job.lease_token < (newest.get(job.id) ?? 0)) {
    return answer(409, { error: 'stale lease token' });
  }
  newest.set(job.id, job.lease_token);
  if (typeof job.args.amount !== 'number') {
    return answer(400, { error: 'args have no amount', discard: true });
  }
  // It has not begun: the job comes again in a second, and no attempt is counted.
  if (job.args.busy && !sentAway.has(job.id)) {
    sentAway.add(job.id);
    return answer(503, { error: 'busy' }, { 'Retry-After': '1' });
  }
  answer(200, { charged: job.args.amount });
}).listen(process.argv[2], '127.0.0.1', () => console.log('ready'));
