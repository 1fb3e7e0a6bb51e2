# Adds jobs with pg: one, many, at most one of a key, and one in a transaction.
require "json"
require "pg"

connection = PG.connect(ENV.fetch("DATABASE_URL"))

# One job. The answer is its id.
one = connection.exec_params("select jobq.enqueue('resize-ruby', args => $1::jsonb, queue => 'images')", [JSON.generate(file: "a.png")])
puts "job #{one.getvalue(0, 0)}"

# Many in one statement.
jobs = %w[b.png c.png].map { |file| { kind: "resize-ruby", args: { file: file } } }
connection.exec_params("select id from jobq.enqueue_many($1::jsonb)", [JSON.generate(jobs)])

# At most one unfinished job with this key: the second call returns the first one's id.
2.times do
  connection.exec_params("select jobq.enqueue('resize-ruby', args => $1::jsonb, unique_key => $2)", [JSON.generate(file: "d.png"), "d.png"])
end

# The job exists if the transaction commits, and only then.
add = lambda do
  connection.exec("insert into public.picture (language, file) values ('ruby', 'e.png')")
  connection.exec_params("select jobq.enqueue('resize-ruby', args => $1::jsonb)", [JSON.generate(file: "e.png")])
end
connection.transaction { add.call }
begin
  connection.transaction { add.call; raise "an error rolls it back" }
rescue RuntimeError => problem
  puts problem.message
end
connection.close
