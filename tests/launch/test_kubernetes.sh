#!/usr/bin/env bash
# What would break: the manifest of examples/kubernetes: its pods do not find each other, or their ranks have no numbers. There is no
# cluster here: its names have to fit, and its command runs twice, in what a pod's environment would be.
set -u
. "$SOURCE_DIR/tests/launch/launchers.sh"
manifest=$SOURCE_DIR/examples/kubernetes/job.yaml

# value KEY: the first one of that key.
value()
{
	sed -n "s/^ *\(- \)\?$1: *\"\?\([^\" #]*\).*/\2/p" "$manifest" | head -1
}

nodes=$(grep -A 1 'name: NODES' "$manifest" | sed -n 's/.*value: "\(.*\)"/\1/p')
ranks=$(grep -A 1 'name: RANKS' "$manifest" | sed -n 's/.*value: "\(.*\)"/\1/p')
[ "$nodes $ranks $(value completions) $(value parallelism)" = "2 2 2 2" ] ||
	complain "$nodes nodes of $ranks ranks, but $(value completions) completions, $(value parallelism) at a time"
[ "$(value completionMode) $(value clusterIP)" = "Indexed None" ] || complain "not an indexed job with a headless service"
service=$(value name) job=$(sed -n '/^kind: Job/,$p' "$manifest" | sed -n 's/^  name: //p' | head -1)
[ "$(value subdomain) $(value job-name)" = "$service $job" ] || complain "the service $service does not name the pods of $job"

# The words of the block behind args, as the shell of the pod gets them.
command=$(sed '1,/^ *args:/d' "$manifest" | sed 1d | tr -s ' \n' ' ')
master=$(sed -n 's/.*--master \([^: ]*\):.*/\1/p' <<<"$command")
[ "$master" = "$job-0.$service" ] || complain "rank 0 is at $job-0.$service, not at $master"
port
command=${command/"$master:29500"/"127.0.0.1:$port"}
command=${command/all_reduce_perf/"$program"}

# pod INDEX: its exit code is the command's.
pod()
{
	$limit env PATH="$BUILD_DIR/launch:$PATH" NODES="$nodes" RANKS="$ranks" TUTTI_SECRET=s JOB_COMPLETION_INDEX="$1" sh -c "$command"
}

pod 1 >out.1 2>err.1 & other=$!
expect 0 pod 0
wait $other || complain "the other pod: $(cat err.1)"
cat out.1 >>out
four
if python3 -c 'import yaml' 2>/dev/null; then
	python3 -c 'import sys, yaml; kinds = [d["kind"] for d in yaml.safe_load_all(open(sys.argv[1]))]; sys.exit(kinds != ["Service", "Job"])' "$manifest" ||
		complain "not the YAML of a service and a job"
fi
exit $failures
