# Counts words, as a jobq handler: standard library only.
#
# Standard input has the job's args as JSON. What happens is told on file descriptor 3, one
# JSON object a line. The exit code decides: 0 completes the job, 65 fails it for good,
# anything else is a failed attempt.
require "json"

EX_DATAERR = 65
CONTROL = IO.for_fd(Integer(ENV.fetch("JOBQ_CONTROL_FD")), "w", sync: true)

def tell(message) = CONTROL.puts(JSON.generate(message))

args = JSON.parse($stdin.read)
unless args["text"]
  warn "args have no text"
  exit EX_DATAERR
end

words = args["text"].split
words.each_with_index { |word, at| tell(progress: 100 * (at + 1) / words.size, stage: "count", message: word) }
tell(result: words.tally)
