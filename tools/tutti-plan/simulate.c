/* tutti-plan simulate: a table of time against ranks. */
#include "arguments.h"
#include "predict.h"
#include "tools/must.h"
#include "units.h"

#include "collectives/plan/layout.h"

#include <stdio.h>
#include <string.h>

#define POINTS_MAX 20

struct curve {
	const char *name;
	struct point *points;
};

/* 2, 4, 8 ... and the number itself. */
static int simulate_list_ranks(int most, int *ranks)
{
	int n = 0;
	for (int p = 2; p < most; p *= 2)
		ranks[n++] = p;
	ranks[n++] = most;
	return n;
}

static void simulate_print_title(const struct arguments *a)
{
	bool blocks = collective_has_blocks(a->collective, SEND_SIDE) ||
		      collective_has_blocks(a->collective, RECV_SIDE);

	printf("%s", collective_name(a->collective));
	if (a->collective != COLL_BARRIER)
		printf(" of %s%s", units_bytes_in_words((double)a->bytes).text,
		       a->collective == COLL_ALL_TO_ALL ? " for each pair"
		       : blocks                         ? " for each rank"
							: "");
	puts(", predicted, not measured");
}

/* The least of those that were found the same way is marked; the formula is no match for a
 * simulation. */
static int simulate_fastest(const struct curve *curves, int n, int k)
{
	int best = -1;
	for (int i = 0; i < n; i++) {
		const struct point *p = &curves[i].points[k];
		if (p->how != HOW_NOT && (best < 0 || p->seconds < curves[best].points[k].seconds))
			best = i;
	}
	return best;
}

static void simulate_print_names(const struct curve *curves, int n)
{
	printf("%8s", "ranks");
	for (int i = 0; i < n; i++)
		printf("  %12s", curves[i].name);
	puts("");
}

static void simulate_print_table(const struct curve *curves, int n, const int *ranks, int points)
{
	bool formula = false;
	char cell[48];

	simulate_print_names(curves, n);
	for (int k = 0; k < points; k++) {
		printf("%8d", ranks[k]);
		for (int i = 0; i < n; i++) {
			const struct point *p = &curves[i].points[k];
			snprintf(cell, sizeof cell, "%s%s%s", p->how == HOW_FORMULA ? "~" : "",
				 p->how == HOW_NOT ? "-" : units_seconds_in_words(p->seconds).text,
				 simulate_fastest(curves, n, k) == i ? "*" : " ");
			printf("  %12s", cell);
			formula |= p->how == HOW_FORMULA;
		}
		puts("");
	}
	puts("* the least of the line");
	if (formula)
		puts("~ too much to simulate: the cost formula goes on from the last point "
		     "(--effort allows more)");
}

static void simulate_print_plans(const struct curve *curves, int n, const int *ranks, int points)
{
	puts("\nmemory of the plan of rank 0 or the root, whatever the size of the call");
	simulate_print_names(curves, n);
	for (int k = 0; k < points; k++) {
		printf("%8d", ranks[k]);
		for (int i = 0; i < n; i++) {
			const struct point *p = &curves[i].points[k];
			printf("  %12s",
			       p->how == HOW_NOT ? "-" : units_bytes_in_words(p->plan_bytes).text);
		}
		puts("");
	}
}

static void simulate_print_reasons(const struct curve *curves, int n, int points)
{
	for (int i = 0; i < n; i++)
		for (int k = 0; k < points; k++)
			if (curves[i].points[k].how == HOW_NOT) {
				printf("- %s of %d ranks: %s\n", curves[i].name,
				       curves[i].points[k].ranks, curves[i].points[k].why);
				break;
			}
}

/* Algorithms that serve no number of ranks get no column. Returns how many others there are. */
static int simulate_put_shown_first(struct curve *curves, int n, int points)
{
	int shown = 0;
	for (int i = 0; i < n; i++) {
		bool any = false;
		for (int k = 0; k < points; k++)
			any |= curves[i].points[k].how != HOW_NOT;
		if (!any)
			continue;
		struct curve curve = curves[i];
		memmove(&curves[shown + 1], &curves[shown], (size_t)(i - shown) * sizeof *curves);
		curves[shown++] = curve;
	}
	return shown;
}

int plan_simulate(const struct arguments *a)
{
	struct curve curves[ALGORITHMS];
	int ranks[POINTS_MAX], points = simulate_list_ranks(a->ranks.of[0].first, ranks), n = 0;
	struct question q = {.root = a->root < 0 ? 0 : a->root,
			     .bytes = (double)a->bytes,
			     .machine = &a->machine,
			     .steps_max = a->effort * 1e6};
	int local = a->nodes > 1 ? a->ranks.of[0].first / a->nodes : a->ranks.of[0].first;

	simulate_print_title(a);
	arguments_print_machine(a);
	for (int i = 0; algorithm_at(i); i++) {
		q.algorithm = algorithm_at(i);
		if (q.algorithm->collective != a->collective || !q.algorithm->build)
			continue;
		struct point *p = must_alloc((size_t)points, sizeof *p);
		for (int k = 0; k < points; k++)
			p[k].ranks = ranks[k];
		predict_curve(q, local, p, points);
		curves[n++] = (struct curve){q.algorithm->name, p};
	}
	int shown = simulate_put_shown_first(curves, n, points);
	simulate_print_table(curves, shown, ranks, points);
	simulate_print_reasons(curves, n, points);
	simulate_print_plans(curves, shown, ranks, points);
	for (int i = 0; i < n; i++)
		free(curves[i].points);
	return 0;
}
