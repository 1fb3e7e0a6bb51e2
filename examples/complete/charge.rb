# Charges a customer, and completes the job in the same transaction: both or neither.
#
# Needs pg (apt-get install ruby-pg, or gem install pg). With "die" in the args, the first
# run is killed before or after its commit.
require "json"
require "pg"

args = JSON.parse($stdin.read)
job, token = ENV.fetch("JOBQ_JOB_ID"), ENV.fetch("JOBQ_RUN_TOKEN")
die = ENV["JOBQ_ATTEMPT"] == "1" ? args["die"] : nil

connection = PG.connect(ENV.fetch("DATABASE_URL"))
# Commits at the end of the block, or rolls back when an exception leaves it: above all
# that of jobq.complete, SQLSTATE JQ005, when another run has the job.
connection.transaction do
  connection.exec_params("insert into public.payment (kind, job) values ('ruby', $1)", [job])
  connection.exec_params("select jobq.complete($1, $2, $3::jsonb)", [job, token, JSON.generate(paid: true)])
  Process.kill("KILL", Process.pid) if die == "before"
end
Process.kill("KILL", Process.pid) if die == "after"
puts "charged"
