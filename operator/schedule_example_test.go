package operator_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jobq-dev/jobq"
	"github.com/jobq-dev/jobq/internal/pgtest"
	"github.com/jobq-dev/jobq/operator"
)

// A program may set its schedules whenever it starts: one that is so already is not touched.
func ExampleOperator_SetSchedule() {
	ctx := context.Background()
	pool, done := pgtest.ExamplePool()
	defer done()
	client, err := jobq.NewClient(pool, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	report := jobq.Schedule{
		Name: "report", Cron: "0 9 * * mon", TimeZone: "Europe/Berlin",
		Kind: "report", Args: json.RawMessage(`{"weeks": 1}`), Overlap: jobq.OverlapSkip,
	}
	for range 2 {
		auditID, err := operator.New(client, "billing").SetSchedule(ctx, report)
		fmt.Println(auditID, err)
	}
	// Output:
	// 1 <nil>
	// 0 <nil>
}
