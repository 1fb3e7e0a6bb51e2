package jobq

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jobq-dev/jobq/internal/db"
	"github.com/jobq-dev/jobq/internal/dberror"
)

// Graph is a set of jobs that wait for one another, to be added all at once. The zero
// value is empty and ready to use. For example two jobs side by side, and a third one
// when both are done:
//
//	var graph jobq.Graph
//	graph.Add("left", Render{Half: 1}, nil)
//	graph.Add("right", Render{Half: 2}, nil)
//	graph.Add("both", Join{}, nil, "left", "right")
//	jobs, err := client.EnqueueGraph(ctx, &graph)
//
// A callback for a group of jobs is a job that waits for all of them. Of none, it runs
// at once.
type Graph struct {
	nodes []graphNode
}

// graphNode is a job of a graph.
type graphNode struct {
	name  string
	job   EnqueueParams
	after []string
}

// Add adds a job to the graph, under a name that is for the graph alone, and is not
// stored. It waits for the jobs with the names of after, which may also be added later,
// and for those of options.After, which are there already. Nil options mean the defaults.
func (g *Graph) Add(name string, args Args, options *EnqueueOptions, after ...string) {
	node := graphNode{name: name, job: EnqueueParams{Args: args}, after: slices.Clone(after)}
	if options != nil {
		node.job.EnqueueOptions = *options
	}
	g.nodes = append(g.nodes, node)
}

// Len is how many jobs the graph has.
func (g *Graph) Len() int { return len(g.nodes) }

// EnqueueGraph adds all jobs of the graph, at most EnqueueManyMax, or none. It returns them by
// their names. ErrInvalid for a name that two jobs have or that none has, and for jobs that wait
// for one another in a circle. A job whose unique key is held is not added (see
// EnqueueOptions.OnConflict): the others wait for its holder.
func (c *Client) EnqueueGraph(ctx context.Context, graph *Graph) (map[string]Enqueued, error) {
	return c.addGraph(ctx, graph, func(ctx context.Context, nodes []graphNode, jobs []EnqueueParams) ([]Enqueued, error) {
		return dberror.Retry(ctx, func() ([]Enqueued, error) { return c.enqueueNodes(ctx, c.queries, nodes, jobs) })
	})
}

// EnqueueGraphTx is EnqueueGraph in the caller's transaction.
func (c *Client) EnqueueGraphTx(ctx context.Context, tx DBTX, graph *Graph) (map[string]Enqueued, error) {
	queries, err := c.in(tx, "enqueue graph")
	if err != nil {
		return nil, err
	}
	return c.addGraph(ctx, graph, func(ctx context.Context, nodes []graphNode, jobs []EnqueueParams) ([]Enqueued, error) {
		return c.enqueueNodes(ctx, queries, nodes, jobs)
	})
}

// addGraph adds the jobs of the graph, within the client's middleware.
func (c *Client) addGraph(ctx context.Context, graph *Graph, add func(context.Context, []graphNode, []EnqueueParams) ([]Enqueued, error)) (map[string]Enqueued, error) {
	if graph == nil {
		return nil, invalidGraph(errors.New("the graph is nil"))
	}
	if len(graph.nodes) == 0 {
		return nil, nil
	}
	if len(graph.nodes) > EnqueueManyMax {
		return nil, invalidGraph(fmt.Errorf("jobs must be at most %d in one call, not %d", EnqueueManyMax, len(graph.nodes)))
	}
	nodes, err := graph.inOrder()
	if err != nil {
		return nil, invalidGraph(err)
	}
	jobs := make([]EnqueueParams, len(nodes))
	for i, node := range nodes {
		jobs[i] = node.job
	}
	inner := func(ctx context.Context, jobs []EnqueueParams) ([]Enqueued, error) { return add(ctx, nodes, jobs) }
	if c.middleware != nil {
		outer := inner
		inner = func(ctx context.Context, jobs []EnqueueParams) ([]Enqueued, error) {
			return c.manyWithin(ctx, jobs, outer)
		}
	}
	answers, err := inner(ctx, jobs)
	if err != nil {
		return nil, err
	}
	enqueued := make(map[string]Enqueued, len(answers))
	for i, answer := range answers {
		enqueued[nodes[i].name] = answer
	}
	return enqueued, nil
}

// enqueueNodes adds the jobs of a graph, each one after those that it waits for.
func (c *Client) enqueueNodes(ctx context.Context, queries *db.Queries, nodes []graphNode, jobs []EnqueueParams) ([]Enqueued, error) {
	columns, err := c.enqueueColumns(jobs)
	if err != nil {
		return nil, invalidGraph(errors.New(withName(nodes, err.Error())))
	}
	places := make(map[string]int64, len(nodes))
	for i, node := range nodes {
		if columns.Args[i], err = c.encodedArgs(ctx, columns.Kinds[i], columns.Args[i]); err != nil {
			return nil, fmt.Errorf("enqueue graph: job %q: %w", node.name, err)
		}
		places[node.name] = int64(i + 1)
		for _, name := range node.after {
			columns.AfterJobs = append(columns.AfterJobs, int32(i+1)) // #nosec G115 -- at most EnqueueManyMax
			columns.AfterParents = append(columns.AfterParents, -places[name])
		}
	}
	rows, err := queries.JobEnqueueMany(ctx, columns)
	if code, reason, ok := db.Refused(err); ok {
		return nil, c.blameCodec(fmt.Errorf("enqueue graph: %w", dberror.Refused(code, withName(nodes, reason))))
	}
	if err != nil {
		return nil, dberror.Wrap(c.schema, "enqueue graph", dberror.NeedRole(db.RoleProducer, err))
	}
	enqueued := make([]Enqueued, len(rows))
	for i, row := range rows {
		enqueued[i] = Enqueued(row)
	}
	return enqueued, nil
}

func invalidGraph(err error) error { return fmt.Errorf("enqueue graph: %w: %w", ErrInvalid, err) }

// placeOfJob is how a refusal begins: with the index among the jobs that were sent.
var placeOfJob = regexp.MustCompile(`^jobs\[(\d+)\]`)

// withName makes a refusal name the job, instead of its index, which the caller does not know.
func withName(nodes []graphNode, reason string) string {
	found := placeOfJob.FindStringSubmatch(reason)
	if found == nil {
		return reason
	}
	place, err := strconv.Atoi(found[1])
	if err != nil || place >= len(nodes) {
		return reason
	}
	return fmt.Sprintf("job %q", nodes[place].name) + strings.TrimPrefix(reason, found[0])
}

// inOrder are the jobs with each one after those that it waits for.
func (g *Graph) inOrder() ([]graphNode, error) {
	byName := make(map[string]int, len(g.nodes))
	for i, node := range g.nodes {
		if _, taken := byName[node.name]; taken {
			return nil, fmt.Errorf("two jobs have the name %q", node.name)
		}
		byName[node.name] = i
	}
	children, open := make([][]int, len(g.nodes)), make([]int, len(g.nodes)) // of each: who waits for it, and for how many it waits
	for i, node := range g.nodes {
		for _, name := range node.after {
			parent, ok := byName[name]
			if !ok {
				return nil, fmt.Errorf("job %q waits for %q, and there is no job with that name", node.name, name)
			}
			children[parent] = append(children[parent], i)
			open[i]++
		}
	}
	var ready []int
	for i, count := range open {
		if count == 0 {
			ready = append(ready, i)
		}
	}
	order := make([]graphNode, 0, len(g.nodes))
	for len(ready) > 0 {
		first := ready[0]
		ready = ready[1:]
		order = append(order, g.nodes[first])
		for _, child := range children[first] {
			if open[child]--; open[child] == 0 {
				ready = append(ready, child)
			}
		}
	}
	if len(order) < len(g.nodes) {
		return nil, g.circle(byName, open)
	}
	return order, nil
}

// circle says which jobs wait for one another. Each open job waits for an open job. So it goes
// from a job to one for which that waits, until it comes to a job for the second time.
func (g *Graph) circle(byName map[string]int, open []int) error {
	at := slices.IndexFunc(open, func(count int) bool { return count > 0 })
	var path []string
	for {
		if begin := slices.Index(path, g.nodes[at].name); begin >= 0 {
			return errors.New("the jobs wait for one another: " + strings.Join(append(path[begin:], path[begin]), ", which waits for "))
		}
		path = append(path, g.nodes[at].name)
		for _, name := range g.nodes[at].after {
			if parent := byName[name]; open[parent] > 0 {
				at = parent
				break
			}
		}
	}
}
