package main

import (
	"fmt"
	"strings"
)

// threeLayouts are those that docs/decisions/0013 chooses from: today's, the
// lease per batch of 0008, and the second layout.
func threeLayouts() []path { return []path{today(), leasePerBatch(), second()} }

// secondPlans vary what is not plain about the jobs.
func secondPlans() (plans []plan) {
	for _, share := range []struct {
		name                    string
		fail, long, own, result int
	}{
		{"no exceptions", 0, 0, 0, 0},
		{"1 % fail", 1, 0, 0, 0},
		{"10 % fail", 10, 0, 0, 0},
		{"1 % late", 0, 1, 0, 0},
		{"10 % late", 0, 10, 0, 0},
		{"10 % end on their own rows", 0, 0, 10, 0},
		{"all end on their own rows", 0, 0, 100, 0},
		{"all have a result", 0, 0, 0, 100},
	} {
		for _, p := range threeLayouts() {
			if share.own > 0 && !p.second || share.result > 0 && p.batched {
				continue // what ends on its own row is to the others a job like all; b has no results
			}
			p.name += ", " + share.name
			each := standard(p)
			each.failPercent, each.longPercent, each.ownPercent, each.resultPercent = share.fail, share.long, share.own, share.result
			if share.name != "no exceptions" {
				each.look = "" // some of the ids are not in the history
			}
			plans = append(plans, each)
		}
	}
	return plans
}

// secondSizePlans vary how many jobs a claim takes.
func secondSizePlans() (plans []plan) {
	for _, size := range []int{1, 10, 100, 1000} {
		for _, p := range threeLayouts() {
			p.name = fmt.Sprintf("%s, batches of %d", p.name, size)
			each := standard(p)
			each.batch, each.look = size, ""
			plans = append(plans, each)
		}
	}
	return plans
}

// secondHeldPlans have a transaction open meanwhile, and tell of all tables what they take on disk.
func secondHeldPlans() (plans []plan) {
	for _, held := range []bool{false, true} {
		for _, p := range threeLayouts() {
			if held {
				p.name += ", transaction held"
			}
			each := standard(p)
			each.held, each.batch = held, 100
			plans = append(plans, each)
		}
	}
	return plans
}

// secondVariantPlans change one thing of the second layout.
func secondVariantPlans() (plans []plan) {
	add := func(name string, change func(*path)) {
		p := second()
		p.name = "second layout: " + name
		change(&p)
		plans = append(plans, standard(p))
	}
	plans = append(plans, standard(today()))
	add("as it is", func(*path) {})
	add("job_ids compressed by lz4", func(p *path) {
		p.setUp += "alter table jobq.lease alter job_ids set storage extended, alter job_ids set compression lz4;"
	})
	add("an index on run (lease_id), and no job_ids", func(p *path) {
		p.setUp += "create index on jobq.run (lease_id);"
		p.claim = mustReplace(p.claim, "array_fill(null::smallint, array[cardinality(t.ids)]), t.ids\n      from (select array_agg(t.id) as ids from taken t having count(*) > 0) t",
			"array_fill(null::smallint, array[t.jobs]), '{}'\n      from (select count(*)::integer as jobs from taken t having count(*) > 0) t")
	})
	add("a lease for each job", func(p *path) { p.claim = runClaimEach })
	add("partitions of nine more days", func(p *path) { p.setUp = secondTables("9") })
	add("only the index on id", func(p *path) {
		p.setUp += "drop index jobq.run_unsuccessful_idx, jobq.run_cancel_idx, jobq.run_completed_idx;"
	})
	add("slots numbered in a CTE of their own", func(p *path) {
		p.claim = strings.Replace(p.claim, "), l as (", "), numbered as materialized (\n  select row_number() over () as slot, t.* from taken t\n), l as (", 1)
		p.claim = strings.Replace(p.claim, "array_agg(t.id) as ids from taken t", "array_agg(t.id order by t.slot) as ids from numbered t", 1)
		p.claim = mustReplace(mustReplace(p.claim, "row_number() over (), ", "t.slot, "), "    from taken t\n  returning", "    from numbered t\n  returning")
	})
	for _, days := range []string{"0", "9"} {
		p := second()
		p.setUp = secondTables(days)
		p.name = "second layout: 10 % fail, batches of 10, partitions of " + days + " more days"
		each := standard(p)
		each.batch, each.failPercent, each.look = 10, 10, ""
		plans = append(plans, each)
	}
	each := standard(today())
	each.name = "today: 10 % fail, batches of 10"
	each.batch, each.failPercent, each.look = 10, 10, ""
	return append(plans, each)
}
