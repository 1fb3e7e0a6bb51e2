package operator_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/jobtest"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/monitor"
	"github.com/jobq-dev/jobq/operator"
)

// loginsServer is a server of its own, since roles are the server's, with sql/roles.sql applied and a login for each
// of some of the roles. It returns a client of the owner, and one of each login.
func loginsServer(t *testing.T, roles ...string) (owner *jobq.Client, as map[string]*jobq.Client) {
	t.Helper()
	ctx := context.Background()
	ownerURL := pgtest.OwnServer(t).URL("postgres")
	require.NoError(t, pgtest.Migrate(ctx, ownerURL, "jobq"))
	clientOf := func(pool *pgxpool.Pool) *jobq.Client {
		client, err := jobq.NewClient(pool, nil)
		require.NoError(t, err)
		return client
	}
	pool := pgtest.Connect(t, ownerURL)
	_, err := pool.Exec(ctx, pgtest.Roles(t))
	require.NoError(t, err)
	as = make(map[string]*jobq.Client)
	for _, role := range roles {
		_, err := pool.Exec(ctx, "create role my_"+role+" login in role jobq_"+role)
		require.NoError(t, err)
		login, err := url.Parse(ownerURL)
		require.NoError(t, err)
		login.User = url.User("my_" + role)
		as[role] = clientOf(pgtest.Connect(t, login.String()))
	}
	return clientOf(pool), as
}

// A program may set what it needs whenever it starts: where all is so already, the right to read is enough. That holds
// of queues, also with the defaults of one that has no row, of settings and of schedules. Where something differs, the
// error names the role that the login needs.
func TestSetWhatIsStoredNeedsNoAdmin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	owner, as := loginsServer(t, "worker", "viewer", "producer")
	queue := operator.QueueChange{
		Lease: new(time.Minute), Retention: new(48 * time.Hour), KeyOrder: new(jobq.KeyOrderHold), KeySeparator: new("/"),
		Rate: &jobq.Rate{Jobs: 5, Period: time.Minute, Burst: 2}, MaxRunning: new(3),
	}
	defaults := operator.QueueChange{
		Lease: new(jobq.DefaultLease), ExtendEvery: nil, Heartbeat: new(jobq.HeartbeatTicker), StaleGrace: new(time.Duration),
		Redelivery: new(jobq.RedeliveryTail), RedeliveryDelay: new(time.Duration), ResetOnReap: new(false), AgeAfter: new(jobq.DefaultAgeAfter),
		Retention: new(time.Duration), FailedRetention: new(time.Duration), MaxRunning: new(0), KeyLimit: new(0), KeyOrder: new(jobq.KeyOrderNone),
		KeySeparator: new(""), Rate: &jobq.Rate{}, KeyRate: &jobq.Rate{},
	}
	settings := operator.SettingsChange{
		FinishedRetention: new(72 * time.Hour), FailedRetention: new(96 * time.Hour), QuarantineCrashes: new(4), KeepUntilExported: new(false),
		ExportedBefore: new(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	}
	schedule := jobq.Schedule{Name: "s", Every: time.Hour, Kind: "k", Args: []byte(`{"a": 1}`)}
	o := operator.New(owner, "owner")
	require.NotZero(t, valueOf(o.SetQueue(ctx, "q", queue))(t))
	require.NotZero(t, valueOf(o.SetSettings(ctx, settings))(t))
	require.NotZero(t, valueOf(o.SetSchedule(ctx, schedule))(t))
	for role, client := range as {
		o := operator.New(client, "program")
		var errs []error
		if role != "producer" { // which may not read
			require.Zero(t, valueOf(o.SetQueue(ctx, "q", queue))(t), role)
			require.Zero(t, valueOf(o.SetQueue(ctx, "other", defaults))(t), role)
			require.Zero(t, valueOf(o.SetSettings(ctx, settings))(t), role)
			require.Zero(t, valueOf(o.SetSchedule(ctx, schedule))(t), role)
		}
		errs = append(errs, jobtest.ErrorOf(o.SetQueue(ctx, "q", operator.QueueChange{MaxRunning: new(4)})))
		errs = append(errs, jobtest.ErrorOf(o.SetQueue(ctx, "", operator.QueueChange{})))
		errs = append(errs, jobtest.ErrorOf(o.SetSettings(ctx, operator.SettingsChange{FailedRetention: new(time.Duration)})))
		errs = append(errs, jobtest.ErrorOf(o.SetSchedule(ctx, jobq.Schedule{Name: "s", Every: time.Minute, Kind: "k"})))
		errs = append(errs, jobtest.ErrorOf(o.SetSchedule(ctx, jobq.Schedule{Name: "new", Every: time.Minute, Kind: "k"})))
		errs = append(errs, jobtest.ErrorOf(o.PauseQueue(ctx, "q", "")))
		for _, err := range errs {
			require.ErrorContains(t, err, "needs the role jobq_admin", role)
			require.ErrorContains(t, err, "permission denied", role)
		}
	}
	queues, err := monitor.New(owner).Queues(ctx)
	require.NoError(t, err)
	require.Len(t, queues, 1, "defaults that are set leave no trace of the name")
	_, err = monitor.New(as["producer"]).Queues(ctx)
	require.ErrorContains(t, err, "needs the role jobq_viewer")
	_, err = as["producer"].Get(ctx, 1)
	require.ErrorContains(t, err, "needs the role jobq_viewer")
	_, err = as["viewer"].Enqueue(ctx, jobtest.Greeting{}, nil)
	require.ErrorContains(t, err, "needs the role jobq_producer")
	_, err = as["viewer"].Cancel(ctx, 1)
	require.ErrorContains(t, err, "needs the role jobq_admin")
}

// valueOf is the value of a call that must not fail.
func valueOf[T any](value T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}
