-- Back: what the first layout does without, when its history has moved.
drop table jobq.run;
drop table jobq.past_lease;
drop function jobq.run_unique_key_drop, jobq.lease_id_next, jobq.lease_day;
drop sequence jobq.lease_number_seq;
