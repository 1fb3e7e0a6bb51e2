-- There: what the second layout does without, when its history has moved.
drop table jobq.finished;
drop function jobq.finished_unique_key_drop;
