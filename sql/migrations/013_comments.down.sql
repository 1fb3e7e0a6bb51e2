-- Nothing is to be undone: the comments stay true of the tables as they were before, and those from before
-- the migration are gone.
select;
