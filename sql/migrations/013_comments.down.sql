-- Comments harm nobody: those of before the migration are gone, and what it says stays true of the tables of before.
select;
