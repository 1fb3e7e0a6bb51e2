-- lock is the statement before claim, in the same transaction. The claim's snapshot must be later than the commit of the claim before.
select l.queue from proto.queue_lock l where l.queue = $1 for no key update
