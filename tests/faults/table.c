/* See table.h. */
#include "tests/faults/table.h"

#include <stdlib.h>
#include <string.h>

static struct cell *cell_of(struct table *t, const struct scenario *s)
{
	const struct fault *f = scenario_fault(s);

	return &t->cells[f->kind][f->point][s->way];
}

void table_add(struct table *t, const struct scenario *s, const struct result *r)
{
	struct cell *c = cell_of(t, s);
	double *more;

	if (r->outcome == JOB_SKIPPED) {
		c->skipped++;
		return;
	}
	c->runs++;
	c->late += !r->has_happened;
	c->failed += r->outcome == JOB_FAILED;
	more = realloc(c->told_ms, (size_t)(c->told + r->told) * sizeof *more + 1);
	if (!more)
		return;
	c->told_ms = more;
	memcpy(more + c->told, r->told_ms, (size_t)r->told * sizeof *more);
	c->told += r->told;
}

void table_free(struct table *t)
{
	for (int k = 0; k < KINDS; k++)
		for (int p = 0; p < POINTS; p++)
			for (int w = 0; w < WAYS; w++)
				free(t->cells[k][p][w].told_ms);
}

static void add(struct cell *to, const struct cell *c)
{
	to->runs += c->runs;
	to->late += c->late;
	to->failed += c->failed;
	to->skipped += c->skipped;
}

struct cell table_sum(const struct table *t)
{
	struct cell sum = {0};

	for (int k = 0; k < KINDS; k++)
		for (int p = 0; p < POINTS; p++)
			for (int w = 0; w < WAYS; w++)
				add(&sum, &t->cells[k][p][w]);
	return sum;
}

static int compare(const void *a, const void *b)
{
	const double *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void write_cell(const struct cell *c, FILE *file)
{
	if (c->runs == 0) {
		fprintf(file, " |");
		return;
	}
	fprintf(file, " %d", c->runs);
	if (c->told > 0) {
		qsort(c->told_ms, (size_t)c->told, sizeof *c->told_ms, compare);
		fprintf(file, ": %.0f / %.0f / %.0f", c->told_ms[0], c->told_ms[c->told / 2],
			c->told_ms[c->told - 1]);
	}
	fprintf(file, " |");
}

void table_write(const struct table *t, FILE *file)
{
	fprintf(file, "| what | in |");
	for (int w = 0; w < WAYS; w++)
		fprintf(file, " %s |", way_names[w]);
	fprintf(file, " too late | failures |\n|");
	for (int column = 0; column < WAYS + 4; column++)
		fprintf(file, "---|");
	fprintf(file, "\n");
	for (int k = 0; k < KINDS; k++)
		for (int p = 0; p < POINTS; p++) {
			struct cell row = {0};
			for (int w = 0; w < WAYS; w++)
				add(&row, &t->cells[k][p][w]);
			if (row.runs == 0)
				continue;
			fprintf(file, "| %s | %s |", kind_names[k], point_names[p]);
			for (int w = 0; w < WAYS; w++)
				write_cell(&t->cells[k][p][w], file);
			fprintf(file, " %d | %d |\n", row.late, row.failed);
		}
}
