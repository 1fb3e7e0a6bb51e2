# Waits for jobs with pg: wait.rb JOB...
require "json"
require "pg"

# The job has failed or was cancelled, is not there, or has not ended in time.
class NotCompleted < StandardError; end

# Returns the result of a job that has completed, nil if it gave none. Nobody else uses the
# connection meanwhile. A notification is a hint: the job is looked at without one too,
# after a pause that grows to 10 s.
def wait_for(connection, job, limit: 60, pause: 1)
  me = rand(2**62)
  channel = connection.exec("select jobq.channel('ended')").getvalue(0, 0)
  connection.exec("listen #{channel}")
  clock = -> { Process.clock_gettime(Process::CLOCK_MONOTONIC) }
  ends_at = clock.call + limit
  loop do
    # For a minute from now on, the end of the job is notified. What was before is not: look.
    connection.exec_params("select jobq.await($1, array[$2::bigint], '{}', '1 minute')", [me, job])
    row = connection.exec_params("select state, result, error from jobq.result($1)", [job]).first
    raise NotCompleted, "there is no job #{job}" unless row
    return row["result"] && JSON.parse(row["result"]) if row["state"] == "completed"
    raise NotCompleted, "job #{job} is #{row["state"]}: #{row["error"] || "no reason given"}" if %w[failed cancelled].include?(row["state"])

    left = ends_at - clock.call
    raise NotCompleted, "job #{job} has not ended in #{limit} s: it is #{row["state"]}" if left <= 0

    connection.wait_for_notify([pause, left].min)
    pause = [pause * 2, 10].min
  end
ensure
  if channel # else the error was before
    connection.exec("unlisten #{channel}")
    connection.exec_params("select jobq.await_end($1)", [me])
  end
end

connection = PG.connect(ENV.fetch("DATABASE_URL"))
ARGV.each do |job|
  puts "job #{job}: #{JSON.generate(wait_for(connection, job, limit: ENV.fetch("LIMIT", 60).to_f, pause: ENV.fetch("PAUSE", 1).to_f))}"
rescue NotCompleted => problem
  puts problem.message
end
connection.close
