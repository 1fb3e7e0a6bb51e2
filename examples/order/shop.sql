-- The shop's own table.
create table public.stock (item text primary key, pieces integer not null check (pieces >= 0));
insert into public.stock values ('lamp', 10);

-- Stands for the card company and the mail provider: what they were asked, and what they
-- have done, once for each key.
create schema outside;
create table outside.request (key text not null);
create table outside.done (key text primary key, content text not null);
