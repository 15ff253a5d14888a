/* tutti-plan explain: what each algorithm should take, which is chosen, what forces another. */
#include "arguments.h"
#include "predict.h"
#include "units.h"

#include "core/status.h"
#include "core/memory/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Simulated beside the formula as long as that takes no time to speak of. */
#define STEPS_QUICK 2e6

static void explain_print_algorithm(const struct arguments *a, struct question q, const char *why,
				    bool is_chosen)
{
	printf("%c %-12s", is_chosen ? '*' : ' ', q.algorithm->name);
	if (!q.algorithm->cost || look_why_not(q.algorithm, q.ranks, q.nodes)) {
		printf("  %10s  %10s", "-", "-");
	} else {
		struct point p = plan_predict(&q);
		printf("  %10s", units_seconds_in_words(predict_formula(&q)).text);
		printf("  %10s",
		       p.how == HOW_SIMULATED ? units_seconds_in_words(p.seconds).text : "-");
	}
	if (why)
		printf("  no: %s\n", why);
	else
		printf("  TUTTI_ALGO=%s=%s\n", collective_name(a->collective), q.algorithm->name);
}

static void explain_print_call(const struct arguments *a, const struct call_args *args)
{
	struct call_summary summary = {.collective = (int)args->collective,
				       .dtype = (int)args->dtype,
				       .op = (int)args->op,
				       .root = args->root,
				       .count = args->count};
	char words[128], *number;

	call_in_words(&summary, words, sizeof words);
	if ((number = strstr(words, " as #")))
		*number = '\0';
	printf("%s on %d rank%s", words, a->ranks.of[0].first, a->ranks.of[0].first > 1 ? "s" : "");
	if (a->nodes)
		printf(" of %d node%s", a->nodes, a->nodes > 1 ? "s" : "");
	puts(a->deterministic ? ", deterministic" : "");
}

static void explain_print_machine(const struct arguments *a)
{
	arguments_print_machine(a);
	if (a->nodes <= 1 && a->machine.links.cores > 0)
		printf("A node's ranks share %g cores: the formula counts that, the simulation "
		       "gives each its own.\n",
		       a->machine.links.cores);
}

int plan_explain(const struct arguments *a)
{
	int ranks = a->ranks.of[0].first, nodes = a->nodes ? a->nodes : 1;
	struct nodes where = nodes_in_order(ranks, nodes);
	struct select select = {.size = ranks,
				.num_nodes = nodes,
				.nodes = nodes > 1 && nodes < ranks ? &where : NULL,
				.has_window = a->nodes == 1,
				.deterministic = a->deterministic,
				.slice_bytes = a->machine.slice_bytes,
				.scratch_bytes = a->machine.scratch_bytes};
	struct call_args args = {.collective = a->collective,
				 .dtype = a->dtype,
				 .op = a->op,
				 .root = a->root < 0 ? 0 : a->root,
				 .count = a->bytes / dtype_bytes(a->dtype)};
	const struct algorithm *chosen = NULL;
	tutti_status status = select_parse(&select, getenv("TUTTI_ALGO"));

	select_prepare(&select, &a->machine.links);
	if (status == TUTTI_OK)
		status = select_algorithm(&select, &args, &chosen);
	explain_print_call(a, &args);
	explain_print_machine(a);
	printf("  %-12s  %10s  %10s\n", "algorithm", "formula", "simulated");
	for (int i = 0; algorithm_at(i); i++) {
		struct question q = {.algorithm = algorithm_at(i),
				     .ranks = ranks,
				     .nodes = nodes,
				     .root = args.root,
				     .bytes = (double)a->bytes,
				     .machine = &a->machine,
				     .steps_max = STEPS_QUICK};
		if (q.algorithm->collective == a->collective)
			explain_print_algorithm(a, q, select_why_not(&select, q.algorithm, &args),
						status == TUTTI_OK && chosen == q.algorithm);
	}
	if (status != TUTTI_OK)
		printf("%s.\n", last_error());
	return status == TUTTI_OK ? 0 : 1;
}
