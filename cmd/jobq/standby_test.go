package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/metrics"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/worker"
	"github.com/jobq-dev/jobq/worker/programs"
)

// Everything that only reads answers on a hot standby as on its primary, also where what a program writes is shown, which
// only the primary has. What writes says why it does not, and does nothing.
func TestCommandsOnAStandby(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	primary := pgtest.OwnServer(t)
	url := primary.URL("postgres")
	require.NoError(t, pgtest.Migrate(ctx, url, "jobq"))
	failed := fmt.Sprint(makeFailed(t, url, "email", 2)[0])
	pool := pgtest.Connect(t, url)
	client, err := jobq.NewClient(pool, nil)
	require.NoError(t, err)
	end := filepath.Join(t.TempDir(), "end")
	running := fmt.Sprint(runProgram(t, client, end))
	_, err = pool.Exec(ctx, "select jobq.enqueue('k', partition_key => 'a', tags => '{t}')")
	require.NoError(t, err)
	_, err = pool.Exec(ctx, "select jobq.act_queue('ann', 'pause', 'email', null)") // action 1
	require.NoError(t, err)
	standby := pgtest.SocketURL(pgtest.StartStandby(t, primary))
	at := func(url, command string) (out, errs string, code int) {
		return invoke(t, "", append(strings.Fields(command), "--database-url", url)...)
	}

	for command, note := range map[string]string{
		"list": "", "list state:failed --json": "", "list -o csv --columns id,state": "", "show " + failed: "", "logs " + failed: "",
		"show " + running: "note: what running programs write", "logs " + running: "note: job " + running + " runs: what running programs write",
		"why " + failed: "", "errors": "", "wait " + failed: "", "kinds": "",
		"queues": "", "queues show default": "", "queues keys default": "", "schedules": "", "workers": "", "audit": "", "settings": "",
		"stats": "note: this is a standby, ", "janitor events": "",
	} {
		wantOut, wantErrs, want := at(url, command)
		out, errs, code := at(standby, command)
		require.Equal(t, want, code, "%s: %s", command, errs)
		if note == "" {
			require.Equal(t, wantErrs, errs, command)
			require.Equal(t, wantOut == "", out == "", command) // ages differ
		} else {
			require.True(t, strings.HasPrefix(errs, note), "%s: %s", command, errs)
		}
	}
	out, errs, code := at(standby, "wait --timeout 1s "+running)
	require.Equal(t, exitNotEnded, code, "%s%s", out, errs)
	out, errs, _ = at(standby, "doctor")
	require.NotContains(t, out+errs, "ERROR")

	reader, err := jobq.NewClient(pgtest.Connect(t, standby), nil)
	require.NoError(t, err)
	scraped := httptest.NewRecorder()
	metrics.Handler(nil, metrics.NewDatabase(monitor.New(reader))).ServeHTTP(scraped, httptest.NewRequestWithContext(ctx, "GET", "/metrics", nil))
	require.Equal(t, http.StatusOK, scraped.Code)
	require.Contains(t, scraped.Body.String(), "\njobq_up 1\n")

	before := query[string](t, pool, "select string_agg(j::text, '; ' order by j.id) from jobq.job j")
	for _, command := range []string{
		"enqueue k {}", "cancel " + failed, "requeue " + failed, "delete " + failed, "edit --priority 1 " + failed, "clone " + failed, "emit e", "undo 1",
		"queues pause default", "queues set default limit=1", "kinds pause SendInvoice", "workers drain x",
	} {
		_, errs, code := at(standby, command)
		require.Equal(t, exitError, code, command)
		require.Contains(t, errs, "the database is read-only here", command)
	}
	require.Equal(t, before, query[string](t, pool, "select string_agg(j::text, '; ' order by j.id) from jobq.job j"))

	require.NoError(t, os.WriteFile(end, nil, 0o600))
	out, errs, code = at(standby, "logs -f "+running) // until the standby has heard of the end
	require.Zero(t, code, errs)
	require.Equal(t, "whole\n", out)
}

// runProgram runs a job with a program that writes a line, and ends when the file is there.
func runProgram(t *testing.T, client *jobq.Client, end string) (id int64) {
	t.Helper()
	w, err := worker.New(client, &worker.Config{NoJanitor: true, DrainTimeout: -1})
	require.NoError(t, err)
	command := programs.Command{Args: []string{"/bin/sh", "-c", "echo whole; until [ -e " + end + " ]; do sleep 0.02; done"}}
	require.NoError(t, programs.New(w).HandleCommand("held", command, nil))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	job, err := client.Enqueue(ctx, jobq.RawArgs{Name: "held", JSON: []byte("{}")}, nil)
	require.NoError(t, err)
	eventually(t, client.Pool(), int64(1), "select count(*) from jobq.output")
	return job.ID
}
