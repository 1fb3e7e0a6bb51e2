set local lock_timeout = '5s';

drop trigger run_parents_ended on jobq.run;
drop function jobq.graph(bigint);
drop function jobq.step_await(bigint, text, text, bigint[]);
drop function jobq.ends_awaited(bigint, bigint[]);
drop function jobq.parents(bigint, bigint, bigint);
drop function jobq.dependency_prune(bigint, bigint, bigint, integer);
drop function jobq.dependency_step(timestamptz, integer);
drop function jobq.dependents_settle(bigint, bigint, jobq.job_state, boolean, bigint[]);
drop function jobq.waiting_cancel(bigint[], text);
drop function jobq.waiting_free(bigint[]);
drop function jobq.job_over(bigint);
drop function jobq.dependencies_add(bigint[], bigint[], integer[], bigint[], text[]);
drop function jobq.run_parents_ended();
drop function jobq.parents_ended(bigint[], smallint[], jobq.job_state);
drop function jobq.look_soon(bigint[], boolean, jobq.job_state);
drop table jobq.dependency_look, jobq.dependency;
drop sequence jobq.dependency_seq;
