-- jobq:compatible-from 13
-- What psql's \d+ and \df+, and graphical clients, say of the tables and functions that docs/sql.md names, and
-- in one line of the others. A migration that adds a column, or a function that people call, comments on it:
-- a test compares. A function that a later migration replaces keeps its comment.
set local lock_timeout = '5s';

comment on table jobq.pending is 'Jobs that wait: for a worker, for their time, or for other jobs. Producers may insert here.';
comment on column jobq.pending.id is 'Draws its value itself, and never comes twice.';
comment on column jobq.pending.position is 'Place in the line of those that may run now; null: scheduled, or waits.';
comment on column jobq.pending.lease_token is 'Token of the last run; 0: it has not run.';
comment on column jobq.pending.run_at is 'Before this time the job does not run.';
comment on column jobq.pending.created_at is 'When the transaction began that added the job.';
comment on column jobq.pending.timeout is 'How long a run may take; null: as long as it likes.';
comment on column jobq.pending.backoff_base is 'How long the job waits after its first failure, doubled with each further one; null: 1 second.';
comment on column jobq.pending.backoff_max is 'The longest such wait; null: 1 day.';
comment on column jobq.pending.priority is 'Lower runs first, within a queue and a partition key.';
comment on column jobq.pending.attempts is 'How many runs have failed or were lost. A requeue keeps it, and allows one more where none is left.';
comment on column jobq.pending.max_attempts is 'A run that fails when attempts has come this far fails the job for good.';
comment on column jobq.pending.crashes is 'How many of the last runs, one after the other, were lost with their worker.';
comment on column jobq.pending.args_apart is 'Whether the args are in jobq.payload.';
comment on column jobq.pending.queue is 'Where the job waits. Settings and pauses of a queue: jobq.queue.';
comment on column jobq.pending.kind is 'What is to be done: the name of a handler.';
comment on column jobq.pending.partition_key is 'What the job belongs to, such as a customer: keys take turns. Empty: nothing.';
comment on column jobq.pending.args is 'What the handler gets; null: they are in jobq.payload.';
comment on column jobq.pending.unique_key is 'At most one unfinished job of the kind has this key; null: none.';
comment on column jobq.pending.last_error is 'Why the last run failed, or the job was cancelled; null: neither.';
comment on column jobq.pending.clear_reason is 'Why the last run was taken from its worker; null: it was not.';
comment on column jobq.pending.checkpoint is 'What a run has saved for the next one to go on with; null: nothing.';
comment on column jobq.pending.metadata is 'What the producer noted beside the args, such as a trace; null: nothing.';
comment on column jobq.pending.tags is 'For filters of people; null: none.';
comment on column jobq.pending.waits is 'True: it waits for other jobs (jobq.dependency); null: it does not.';

comment on table jobq.run is 'Jobs that a worker has claimed, with their last run, and those that are over. One partition for each day of claims. Only jobq writes it; read jobq.job.';
comment on column jobq.run.id is 'The job.';
comment on column jobq.run.lease_id is 'The lease of the run, which is its token.';
comment on column jobq.run.position is 'Place in the line that it had.';
comment on column jobq.run.run_at is 'As in jobq.pending; null: as created_at.';
comment on column jobq.run.created_at is 'When the transaction began that added the job.';
comment on column jobq.run.began_at is 'When the handler began, where that is known and the run is over; else the claim.';
comment on column jobq.run.finished_at is 'When it was over; null: it runs, or it plainly succeeded and its lease says when.';
comment on column jobq.run.cancel_requested_at is 'When somebody asked the worker to stop it; null: nobody did.';
comment on column jobq.run.timeout is 'How long a run may take; null: as long as it likes.';
comment on column jobq.run.backoff_base is 'How long the job waits after its first failure, doubled with each further one; null: 1 second.';
comment on column jobq.run.backoff_max is 'The longest such wait; null: 1 day.';
comment on column jobq.run.state is 'How it ended; null: it runs, or plainly succeeded.';
comment on column jobq.run.slot is 'Its place in the lease, from 1; 0: cancelled before it ran.';
comment on column jobq.run.priority is 'Lower runs first, within a queue and a partition key.';
comment on column jobq.run.attempts is 'How many runs have failed or were lost. A requeue keeps it, and allows one more where none is left.';
comment on column jobq.run.max_attempts is 'A run that fails when attempts has come this far fails the job for good.';
comment on column jobq.run.crashes is 'How many of the last runs, one after the other, were lost with their worker.';
comment on column jobq.run.args_apart is 'Whether the args are in jobq.payload.';
comment on column jobq.run.queue is 'Where the job waits. Settings and pauses of a queue: jobq.queue.';
comment on column jobq.run.kind is 'What is to be done: the name of a handler.';
comment on column jobq.run.partition_key is 'What the job belongs to; null: nothing.';
comment on column jobq.run.args is 'What the handler gets; null: they are in jobq.payload, or retention has deleted them.';
comment on column jobq.run.unique_key is 'At most one unfinished job of the kind has this key; null: none.';
comment on column jobq.run.last_error is 'Why the last run failed, or the job was cancelled; null: neither.';
comment on column jobq.run.clear_reason is 'Why the last run was taken from its worker; null: it was not.';
comment on column jobq.run.checkpoint is 'What a run has saved for the next one to go on with; null: nothing.';
comment on column jobq.run.metadata is 'What the producer noted beside the args, such as a trace; null: nothing.';
comment on column jobq.run.tags is 'For filters of people; null: none.';
comment on column jobq.run.result is 'What the handler of a completed job gave; null: nothing.';

comment on view jobq.job is 'Every job, whatever its stage. Look jobs up by id; for charts, read jobq.stats and never count jobs.';
comment on column jobq.job.id is 'The job.';
comment on column jobq.job.state is 'waiting (for other jobs), scheduled, available, running, completed, failed or cancelled.';
comment on column jobq.job.queue is 'Where the job waits. Settings and pauses of a queue: jobq.queue.';
comment on column jobq.job.kind is 'What is to be done: the name of a handler.';
comment on column jobq.job.priority is 'Lower runs first, within a queue and a partition key.';
comment on column jobq.job.attempts is 'How many runs have failed or were lost. A requeue keeps it, and allows one more where none is left.';
comment on column jobq.job.max_attempts is 'A run that fails when attempts has come this far fails the job for good.';
comment on column jobq.job.crashes is 'How many of the last runs, one after the other, were lost with their worker.';
comment on column jobq.job.lease_token is 'Token of the current or last run; 0: it has not run.';
comment on column jobq.job.run_at is 'Before this time the job does not run.';
comment on column jobq.job.created_at is 'When the transaction began that added the job.';
comment on column jobq.job.started_at is 'When the current or last run began; null while it waits. Of one that plainly succeeded, when its batch was claimed: finished_at - started_at is the most that it can have taken.';
comment on column jobq.job.finished_at is 'When the job was over; null: it is not.';
comment on column jobq.job.lease_owner is 'The worker that runs it, or ran it last; null while it waits.';
comment on column jobq.job.lease_expires_at is 'Until when its worker has it, unless it extends the lease; null: it does not run.';
comment on column jobq.job.cancel_requested_at is 'When somebody asked its worker to stop it; null: nobody did, or it does not run.';
comment on column jobq.job.progressed_at is 'When the run last said how far it is.';
comment on column jobq.job.progress_percent is '0 to 100, as the run says.';
comment on column jobq.job.progress_stage is 'As the run says.';
comment on column jobq.job.progress_message is 'As the run says.';
comment on column jobq.job.timeout is 'How long a run may take; null: as long as it likes.';
comment on column jobq.job.backoff_base is 'How long the job waits after its first failure, doubled with each further one; null: 1 second.';
comment on column jobq.job.backoff_max is 'The longest such wait; null: 1 day.';
comment on column jobq.job.unique_key is 'At most one unfinished job of the kind has this key; null: none.';
comment on column jobq.job.last_error is 'Why the last run failed, or the job was cancelled; null: neither.';
comment on column jobq.job.clear_reason is 'Why the last run was taken from its worker; null: it was not.';
comment on column jobq.job.tags is 'For filters of people; null: none.';
comment on column jobq.job.metadata is 'What the producer noted beside the args, such as a trace; null: nothing.';
comment on column jobq.job.args is 'What the handler gets; null: retention has deleted them.';
comment on column jobq.job.checkpoint is 'What a run has saved for the next one to go on with; null: nothing.';
comment on column jobq.job.result is 'What the handler of a completed job gave; null: nothing.';
comment on column jobq.job.partition_key is 'What the job belongs to, such as a customer; null: nothing.';

comment on view jobq.stats is 'How many jobs ended, by minute, queue and kind, and how long they ran and waited. For charts.';
comment on column jobq.stats.minute is 'Its beginning.';
comment on column jobq.stats.queue is 'Of the jobs.';
comment on column jobq.stats.kind is 'Of the jobs.';
comment on column jobq.stats.completed is 'Jobs that succeeded.';
comment on column jobq.stats.failed is 'Jobs that failed for good.';
comment on column jobq.stats.retried is 'Runs that failed and are tried again.';
comment on column jobq.stats.lost is 'Runs that were lost with their worker.';
comment on column jobq.stats.cancelled is 'Jobs that were cancelled.';
comment on column jobq.stats.run_seconds is 'How long those that ended ran, in all.';
comment on column jobq.stats.wait_seconds is 'How long these waited before, in all.';

comment on table jobq.lease is 'What is claimed now: a row for each claim, with all its jobs. Only jobq writes it.';
comment on column jobq.lease.id is 'The token of the jobs'' runs. Grows with each claim.';
comment on column jobq.lease.claimed_at is 'By the clock of the database.';
comment on column jobq.lease.expires_at is 'After this a janitor takes the jobs away, unless the worker has extended it.';
comment on column jobq.lease.lost_at is 'Not null: a janitor took it from its owner, whose writes are refused since; when one looked at it last.';
comment on column jobq.lease.begun is 'Jobs of the slots 1 to begun may have begun. Those beyond it have not.';
comment on column jobq.lease.owner is 'The worker.';
comment on column jobq.lease.queue is 'Of the jobs.';
comment on column jobq.lease.ended_slots is 'Places in job_ids of jobs that have ended.';
comment on column jobq.lease.ended_ms is 'Beside each, the milliseconds after claimed_at at which it succeeded; -1: see its row of jobq.run.';
comment on column jobq.lease.job_ids is 'The jobs, by slot.';

comment on table jobq.past_lease is 'Claims of which no job runs any more: who ran them, and when they succeeded. Only jobq writes it.';
comment on column jobq.past_lease.id is 'The token of the jobs'' runs.';
comment on column jobq.past_lease.claimed_at is 'By the clock of the database.';
comment on column jobq.past_lease.owner is 'The worker.';
comment on column jobq.past_lease.ended is 'By slot, the milliseconds after claimed_at at which the job succeeded; -1: see its row of jobq.run.';

comment on table jobq.attempt is 'Runs that did not simply succeed, runs of programs, and runs with output.';
comment on column jobq.attempt.job_id is 'Of the run.';
comment on column jobq.attempt.finished_at is 'When it ended.';
comment on column jobq.attempt.started_at is 'When it began.';
comment on column jobq.attempt.lease_token is 'Of the run.';
comment on column jobq.attempt.outcome is 'How it ended. Only lost is written by a janitor.';
comment on column jobq.attempt.number is 'Which attempt of the job it was, from 1.';
comment on column jobq.attempt.worker_id is 'The worker.';
comment on column jobq.attempt.error is 'Why it failed; null: it did not.';
comment on column jobq.attempt.output is 'The end of what the program wrote; null: nothing was kept.';
comment on column jobq.attempt.usage is 'What the program used: CPU time, memory; null: not known.';

comment on table jobq.payload is 'Args over 1000 bytes. Retention deletes them with their jobs.';
comment on column jobq.payload.job_id is 'The job.';
comment on column jobq.payload.args is 'What its handler gets.';

comment on table jobq.queue is 'Settings of queues. One without a row has the defaults. Change them with jobq.act_queue_set.';
comment on column jobq.queue.name is 'The queue.';
comment on column jobq.queue.lease is 'How long a claim lasts unless it is extended.';
comment on column jobq.queue.extend_every is 'How often workers extend it; null: each third of the lease.';
comment on column jobq.queue.heartbeat is 'What extends a lease: ticker, progress, both or off.';
comment on column jobq.queue.stale_grace is 'How long after its end a lease is left alone.';
comment on column jobq.queue.redelivery is 'Where a lost job goes: head or tail of the line.';
comment on column jobq.queue.redelivery_delay is 'And after which delay.';
comment on column jobq.queue.reset_on_reap is 'Whether a lost run''s checkpoint is dropped.';
comment on column jobq.queue.max_running is 'How many jobs run at once, over all workers; null: no limit.';
comment on column jobq.queue.key_limit is 'How many of each partition key; null: no limit.';
comment on column jobq.queue.key_order is 'Strict order within a key: hold, pass or stop; null: none.';
comment on column jobq.queue.key_separator is 'What ends the group of a partition key; groups have equal shares. Null: each key is a group.';
comment on column jobq.queue.rate_jobs is 'How many jobs may start in each rate_period; null: any number.';
comment on column jobq.queue.rate_period is 'See rate_jobs.';
comment on column jobq.queue.key_rate_jobs is 'How many jobs of each partition key may start in each key_rate_period; null: any number.';
comment on column jobq.queue.key_rate_period is 'See key_rate_jobs.';
comment on column jobq.queue.key_rate_burst is 'How many of these at once; null: a tenth of a second''s jobs, 1 at least.';
comment on column jobq.queue.rate_burst is 'How many of these at once; null: a tenth of a second''s jobs, 1 at least.';
comment on column jobq.queue.age_after is 'How long the first job of a priority waits before it gets turns among more urgent ones; 0: for ever.';
comment on column jobq.queue.retention is 'How long finished jobs of the queue are kept, at least; null: as finished_retention says.';
comment on column jobq.queue.failed_retention is 'And those of them that failed or were cancelled; null: as retention says, or else failed_retention of all queues.';
comment on column jobq.queue.paused_at is 'Since when nothing is claimed; null: it is not paused.';
comment on column jobq.queue.paused_by is 'Who paused it.';
comment on column jobq.queue.pause_reason is 'And why.';
comment on column jobq.queue.created_at is 'When the row was made.';

comment on table jobq.kind is 'Kinds that are paused, or whose workers have crashed of late. Change them with jobq.act_kind.';
comment on column jobq.kind.name is 'The kind.';
comment on column jobq.kind.crashes is 'How many times in a row workers crashed that ran it.';
comment on column jobq.kind.crashed_at is 'When the last of these was found.';
comment on column jobq.kind.paused_at is 'Since when no job of it is claimed; null: it is not paused.';
comment on column jobq.kind.paused_by is 'Who paused it; jobq: a quarantine.';
comment on column jobq.kind.pause_reason is 'And why.';

comment on table jobq.generation_turn is 'The row that a session locks to advance the sequences after a failover or a restore.';
comment on table jobq.turn is 'Rows that sessions lock to take turns.';
comment on column jobq.turn.name is 'Whose turn: queue and its name, announce, or schedules.';
comment on column jobq.turn.part is '0, or the number of a part for a claim that shares the turn.';
comment on column jobq.turn.parts is 'How many parts there are beside part 0.';
comment on table jobq.paused_key is 'Partition keys of queues that are paused. Change them with jobq.act_key.';
comment on column jobq.paused_key.queue is 'The queue.';
comment on column jobq.paused_key.key is 'The partition key.';
comment on column jobq.paused_key.paused_at is 'Since when no job of it is claimed.';
comment on column jobq.paused_key.paused_by is 'Who paused it.';
comment on column jobq.paused_key.pause_reason is 'And why.';
comment on table jobq.key_weight is 'Partition keys of queues that have a weight other than 1. Change them with jobq.act_key_weight.';
comment on column jobq.key_weight.queue is 'The queue.';
comment on column jobq.key_weight.key is 'The partition key.';
comment on column jobq.key_weight.weight is 'How many of its jobs start where one of a key without a weight does.';

comment on table jobq.janitor_seen is 'When a janitor last said that it lives: one row, or none before the first time.';
comment on column jobq.janitor_seen.one is 'Keeps it at one row.';
comment on column jobq.janitor_seen.seen_at is 'When that was: every 10 seconds while at least one janitor runs.';
comment on column jobq.janitor_seen.janitor is 'The name of the janitor that said so.';
comment on table jobq.worker is 'Processes that run jobs: a row for each, while it lives and for a while after.';
comment on column jobq.worker.id is 'Its name, which leases have as their owner.';
comment on column jobq.worker.started_at is 'When it began.';
comment on column jobq.worker.heartbeat_at is 'When it last said that it lives, every 10 seconds.';
comment on column jobq.worker.drain_requested_at is 'When somebody asked it to finish and leave; null: nobody did.';
comment on column jobq.worker.process_start is 'With pid and boot_id, tells the process from later ones; null: not known.';
comment on column jobq.worker.pid is 'Of the process.';
comment on column jobq.worker.connections_max is 'How many connections to the server it may open; null: not known, as behind a pooler.';
comment on column jobq.worker.draining is 'Whether it takes no new jobs.';
comment on column jobq.worker.has_room is 'Whether it had free slots.';
comment on column jobq.worker.present is 'Whether it holds a lock that says it is there.';
comment on column jobq.worker.hostname is 'Of its machine.';
comment on column jobq.worker.boot_id is 'Of its machine; null: not known.';
comment on column jobq.worker.pid_namespace is 'In which pid counts; null: not known.';
comment on column jobq.worker.version is 'Of jobq, or of the program with it.';
comment on column jobq.worker.queues is 'Slots by queue, as a JSON object.';
comment on column jobq.worker.programs is 'What its programs have done, by kind, as a JSON object.';
comment on column jobq.worker.kinds is 'That it has handlers for.';
comment on column jobq.worker.kind_slots is 'Slots by kind, in each queue, as a JSON object: of kinds that have slots of their own; null: not known.';
comment on column jobq.worker.keys is 'Names of the keys with which it can decrypt.';

comment on table jobq.setting is 'Settings of the whole schema: one row. Change them with jobq.act_settings.';
comment on column jobq.setting.singleton is 'Always true.';
comment on column jobq.setting.finished_retention is 'How long finished jobs are kept, at least.';
comment on column jobq.setting.failed_retention is 'And those that failed or were cancelled; null: as finished_retention.';
comment on column jobq.setting.quarantine_crashes is 'After how many crashes in a row a kind is paused; 0: never.';
comment on column jobq.setting.keep_until_exported is 'Whether days of the history stay until they were exported.';
comment on column jobq.setting.exported_before is 'All days before this one were.';
comment on column jobq.setting.export_day is 'The day of which an export has begun last.';
comment on column jobq.setting.export_began_at is 'When; null: not, or one of its jobs has come back since.';

comment on table jobq.sweep is 'How far jobs were deleted from days of the history that stay for others, which are kept for longer.';
comment on column jobq.sweep.day is 'The day (UTC).';
comment on column jobq.sweep.began_at is 'When it was last begun.';
comment on column jobq.sweep.again_at is 'When the day is to be looked through once more; null: when the next retention is over.';
comment on column jobq.sweep.next_block is 'The block of its partition of run at which it goes on; null: it does not.';
comment on column jobq.sweep.next_lease is 'The lease after which it goes on; null: it does not.';
comment on column jobq.sweep.last_lease is 'The last lease at which it looks; null: at none.';
comment on column jobq.sweep.left_over is 'Whether jobs stay whose time has come, such as those that run.';
comment on table jobq.sweep_lease is 'Leases of the day that is being swept whose jobs are kept.';
comment on column jobq.sweep_lease.lease_id is 'The lease.';
comment on table jobq.sweep_again is 'Leases of jobs that an undo has brought back: their days are to be swept again.';
comment on column jobq.sweep_again.lease_id is 'The lease.';

comment on table jobq.schedule is 'Jobs that are added at fixed times. Change it with jobq.schedule_set and its like.';
comment on column jobq.schedule.name is 'The schedule.';
comment on column jobq.schedule.revision is 'Grows with each change that people make.';
comment on column jobq.schedule.cron is 'A cron expression; null: see every.';
comment on column jobq.schedule.every is 'Or how often; null: see cron.';
comment on column jobq.schedule.time_zone is 'Of cron: a name of the IANA database.';
comment on column jobq.schedule.kind is 'Of the jobs to add.';
comment on column jobq.schedule.args is 'Of the jobs.';
comment on column jobq.schedule.queue is 'Of the jobs.';
comment on column jobq.schedule.priority is 'Of the jobs.';
comment on column jobq.schedule.max_attempts is 'Of the jobs.';
comment on column jobq.schedule.timeout is 'Of the jobs; null: none.';
comment on column jobq.schedule.backoff_base is 'Of the jobs; null: the default.';
comment on column jobq.schedule.backoff_max is 'Of the jobs; null: the default.';
comment on column jobq.schedule.tags is 'Of the jobs; null: none.';
comment on column jobq.schedule.metadata is 'Of the jobs; null: none.';
comment on column jobq.schedule.partition_key is 'Of the jobs; null: none.';
comment on column jobq.schedule.catch_up is 'Which missed ticks are made up for: none, the latest, or all.';
comment on column jobq.schedule.catch_up_max is 'How many at most.';
comment on column jobq.schedule.catch_up_within is 'None that is later than this.';
comment on column jobq.schedule.overlap is 'allow, or skip: no new job while the last one is unfinished.';
comment on column jobq.schedule.source is 'Where it is declared, such as a file; empty: nowhere.';
comment on column jobq.schedule.created_at is 'When it was made.';
comment on column jobq.schedule.paused_at is 'Since when it adds nothing; null: it is not paused.';
comment on column jobq.schedule.paused_by is 'Who paused it.';
comment on column jobq.schedule.pause_reason is 'And why.';
comment on column jobq.schedule.cursor_at is 'All ticks up to this moment are dealt with.';
comment on column jobq.schedule.due_at is 'When a janitor looks at it next; null: never.';
comment on column jobq.schedule.last_tick_at is 'The last tick dealt with.';
comment on column jobq.schedule.last_job_id is 'The last job that a tick added.';
comment on column jobq.schedule.failures is 'How many times in a row it did not work.';
comment on column jobq.schedule.error is 'Why it does not work; null: it does.';
comment on column jobq.schedule.error_at is 'Since when.';

comment on table jobq.schedule_tick is 'Moments at which schedules fired, for 7 days.';
comment on column jobq.schedule_tick.schedule is 'Its name.';
comment on column jobq.schedule_tick.tick_at is 'The moment by the schedule, not when the job was added.';
comment on column jobq.schedule_tick.job_id is 'The job; null: the tick was skipped.';

comment on table jobq.step is 'Durable steps of jobs. Programs write them with jobq.step_put and its like.';
comment on column jobq.step.job_id is 'The job.';
comment on column jobq.step.started_at is 'When a run first came to it.';
comment on column jobq.step.finished_at is 'When it was done; null: it is not.';
comment on column jobq.step.wake_at is 'Of a sleep: its end; of an event: its timeout; null: neither.';
comment on column jobq.step.lease_token is 'The run that came to it last.';
comment on column jobq.step.claimed_at is 'When that run was claimed.';
comment on column jobq.step.number is 'The order in which the job came to its steps, from 1.';
comment on column jobq.step.attempts is 'How many runs began it.';
comment on column jobq.step.type is 'step, sleep, event or await.';
comment on column jobq.step.timed_out is 'Whether the event did not come in time.';
comment on column jobq.step.name is 'Within the job.';
comment on column jobq.step.result is 'What it gave; null while it is not done.';

comment on table jobq.emitted is 'Events that were emitted: the first of each name counts.';
comment on column jobq.emitted.name is 'The event.';
comment on column jobq.emitted.emitted_at is 'When.';
comment on column jobq.emitted.woken_to is 'Jobs up to this one were woken; null: all.';
comment on column jobq.emitted.again_at is 'When the janitor looks again for jobs that began to wait while it was emitted; null: that is done.';
comment on column jobq.emitted.again_before is 'It looks until all transactions before this one have ended.';
comment on column jobq.emitted.payload is 'What it carries.';

comment on table jobq.digest is 'What workers tell who watches: rows that live for seconds.';
comment on column jobq.digest.id is 'Told to listeners.';
comment on column jobq.digest.told_at is 'When.';
comment on column jobq.digest.digest is 'Starts and ends of jobs since the last one.';

comment on table jobq.progress is 'What runs say of themselves while they run.';
comment on column jobq.progress.job_id is 'The job.';
comment on column jobq.progress.lease_id is 'Its run. Of an earlier one, it does not count.';
comment on column jobq.progress.progressed_at is 'When it last said how far it is.';
comment on column jobq.progress.percent is '0 to 100.';
comment on column jobq.progress.stage is 'As the run says.';
comment on column jobq.progress.message is 'As the run says.';
comment on column jobq.progress.checkpoint is 'What the run has saved; null: see jobq.run.';

comment on table jobq.output is 'What running programs have written, while somebody watches.';
comment on table jobq.unique_key is 'Unique keys that are taken, and the jobs that hold them.';
comment on table jobq.throttle is 'How far queues with a rate have used it.';
comment on table jobq.lane is 'Partition keys that have jobs: whose turn it is, and what they hold.';
comment on table jobq.lane_head is 'The job of each partition key that was claimed last, in queues with a strict order.';
comment on table jobq.lane_hint is 'Partition keys that a claim is to look at; ids below 0: that were paused.';
comment on table jobq.key_group is 'Groups of partition keys, in queues with a key_separator: which turn each gets next.';
comment on table jobq.event is 'What janitors and starting workers saw and did, for people.';
comment on table jobq.stat is 'Sums by minute: read jobq.stats.';
comment on table jobq.stat_delta is 'What is yet to be added to jobq.stat.';
comment on table jobq.audit is 'What people did: one row for each action.';
comment on table jobq.audit_job is 'What an action did to each of its jobs, for the undo.';
comment on table jobq.watcher is 'Who watches, and until when.';
comment on table jobq.waiter is 'Processes that wait for ends of jobs.';
comment on table jobq.awaited is 'The jobs for which they wait.';
comment on table jobq.dependency is 'Which job waits, or has waited, for which: read jobq.parents.';
comment on table jobq.dependency_look is 'Jobs at whose ends, and children, a janitor is to look.';
comment on table jobq.secret is 'The key of the codes in run tokens. Only the owner reads it.';
comment on type jobq.job_state is 'Where a job is in its life.';
comment on type jobq.attempt_outcome is 'How a run ended.';

-- By their names, whatever arguments they have: enqueue and enqueue_many have one for each type of args.
do $$
declare
  f record;
begin
  for f in
    select p.oid::regprocedure as function, c.comment
      from (values
        ('enqueue', 'Adds a job and returns its id: docs/sql.md. Only kind is required; null means the default.'),
        ('enqueue_many', 'Adds up to 100,000 jobs, given as an array of objects with the arguments of enqueue, all or none.'),
        ('args_bytes_max', 'The limit on args, in bytes as stored and as text. Replace it to change it.'),
        ('max_attempts_default', '25. Do not replace it.'),
        ('lease_default', '60 seconds. Do not replace it.'),
        ('age_after_default', '5 minutes. Do not replace it.'),
        ('schedule_set', 'Makes or changes a schedule; returns the number of the action, or null if nothing changed.'),
        ('schedule_pause', 'The schedule adds nothing until schedule_resume.'),
        ('schedule_resume', 'The schedule goes on.'),
        ('schedule_remove', 'Removes a schedule; its jobs stay.'),
        ('schedule_run', 'Adds the schedule''s job now, and returns its id.'),
        ('cancel', 'Ends a job that waits, or asks the worker of a running one to stop; returns the state afterwards, null for no such job.'),
        ('requeue', 'Makes a job that does not run available now; null for no such job.'),
        ('delete_job', 'Removes a job that does not run; returns whether there was one.'),
        ('act', 'Does one action to up to 1000 jobs, and records it for jobq.undo.'),
        ('undo', 'Takes an action of the audit back, as far as its jobs are as it left them.'),
        ('complete', 'Ends a run well, in the program''s own transaction. The token is that of the run.'),
        ('fail', 'Ends a run as failed; returns what became of the job.'),
        ('snooze', 'Ends a run; the job runs again later, and uses no attempt.'),
        ('progress', 'Says how far a run is.'),
        ('checkpoint', 'Saves what the next run is to go on with.'),
        ('step_get', 'Whether a durable step is done, and its result.'),
        ('step_put', 'Stores the result of a durable step.'),
        ('step_sleep', 'Sleeps without holding a slot; false: it has ended the run, which comes back later.'),
        ('step_wait', 'Waits for an event; not done: it has ended the run, which comes back later.'),
        ('step_await', 'Waits for other jobs; not done: it has ended the run, which comes back later.'),
        ('step_forget', 'Makes a job that does not run do a step again, and those after it; returns how many.'),
        ('emit', 'Emits an event; false: one of that name was there before, and counts.'),
        ('result', 'State, result, error and end of a job: no row for no such job. Does not wait.'),
        ('await', 'Asks for notifications of the ends of jobs: docs/results.md.'),
        ('await_end', 'Takes that back.'),
        ('why', 'Why a job does not run: a row for each reason.'),
        ('act_queue_set', 'Changes settings of a queue; returns the number of the action, or null if nothing changed.'),
        ('act_kind', 'Pauses a kind, or lets it go on; returns the number of the action, or null if nothing changed.'),
        ('act_key_weight', 'Gives a partition key of a queue a weight, 1 to 100; returns the number of the action, null if nothing changed, and whether a job of it is available.'),
        ('act_key', 'Pauses a partition key of a queue, or lets it go on; returns the number of the action, null if nothing changed, and whether a job of it is available.'),
        ('act_settings', 'Changes settings of the whole schema; returns the number of the action, or null if nothing changed.'),
        ('error_pattern', 'What errors of the same cause have in common: # for numbers, ids and addresses.'),
        ('parents', 'The jobs for which a job waits or has waited.'),
        ('graph', 'The jobs with which a job belongs together.')
      ) as c(name, comment)
      join pg_proc p on p.proname = c.name and p.pronamespace = (select x.relnamespace from pg_class x where x.oid = 'jobq.pending'::regclass)
  loop
    execute format('comment on function %s is %L', f.function, f.comment);
  end loop;
end $$;

-- Names in the body of a function are looked up when it runs, in the search_path of whoever calls it: an object that
-- somebody else has put there first would run with the caller's rights. So each function has a search_path of its own.
-- A body of SQL that is no string needs none: its names were looked up when it was made, and the planner can still put
-- it in the place of the call. A later migration does the same for the functions that it makes. Those that each insert
-- calls go without, since a clause costs some microseconds a call: only functions that have one call them.
do $$
declare
  f record;
begin
  for f in
    select p.oid::regprocedure as function
      from pg_proc p
      where p.pronamespace = (select c.relnamespace from pg_class c where c.oid = 'jobq.pending'::regclass) and p.prosqlbody is null
        and not exists (select from unnest(p.proconfig) s where s like 'search_path=%')
        and p.proname not in ('pending_json_require', 'json_problem', 'json_problem_large')
  loop
    execute format('alter function %s set search_path = pg_catalog, pg_temp', f.function);
  end loop;
end $$;
