set local lock_timeout = '5s';

drop function jobq.checkpoint(bigint, text, jsonb);
drop function jobq.progress(bigint, text, double precision, text, text);
drop function jobq.snooze(bigint, text, interval, timestamptz);
drop function jobq.fail(bigint, text, text, interval, boolean);
drop function jobq.complete(bigint, text, jsonb);
drop function jobq.delay_require(text, interval);
drop function jobq.run_close(bigint, text, jobq.attempt_outcome, text, interval, boolean, jsonb, boolean);
drop function jobq.run_held(bigint, text);
drop function jobq.run_token_check(bigint, text);
drop function jobq.run_token_code(text);
drop function jobq.run_key();
drop table jobq.secret;
