-- Back: the leases go to the history, which needs them until it has moved. What
-- had not ended in its lease has moved to running, or says on its own row how it ended.
insert into jobq.past_lease (id, claimed_at, owner, ended)
  select l.id, l.claimed_at, l.owner, array(
        select coalesce(l.ended_ms[array_position(l.ended_slots, s.slot::smallint)], -1)::smallint
          from generate_series(1, cardinality(l.job_ids)) as s(slot)
          order by s.slot)
    from jobq.lease l;
drop table jobq.lease;
drop table jobq.progress;
