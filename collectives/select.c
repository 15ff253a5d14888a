/* The table of algorithms and the choice among them. */
#include "collectives/select.h"

#include "core/status.h"
#include "memory/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t width_one(int size)
{
	(void)size;
	return 1;
}

static uint32_t width_size(int size)
{
	return (uint32_t)size;
}

static uint32_t width_log(int size)
{
	uint32_t width = 2;
	for (int n = 1; n < size; n *= 2)
		width++;
	return width;
}

#define WINDOW(collective)                                                                         \
	{                                                                                          \
		collective, "window", NULL, false, false, true, width_one                          \
	}

static const struct algorithm table[] = {
	{COLL_ALL_REDUCE, "ring", ring_all_reduce, true, true, false, width_one},
	{COLL_ALL_REDUCE, "doubling", doubling_all_reduce, false, false, false, width_log},
	{COLL_ALL_REDUCE, "direct", direct_all_reduce, true, true, true, width_size},
	WINDOW(COLL_ALL_REDUCE),
	{COLL_REDUCE_SCATTER, "ring", ring_reduce_scatter, true, false, false, width_size},
	{COLL_REDUCE_SCATTER, "direct", direct_reduce_scatter, true, false, true, width_size},
	WINDOW(COLL_REDUCE_SCATTER),
	{COLL_ALL_GATHER, "ring", ring_all_gather, false, true, true, width_one},
	{COLL_ALL_GATHER, "direct", direct_all_gather, false, true, true, width_one},
	WINDOW(COLL_ALL_GATHER),
	{COLL_BROADCAST, "ring", ring_broadcast, false, false, true, width_one},
	{COLL_BROADCAST, "doubling", doubling_broadcast, false, false, true, width_one},
	{COLL_BROADCAST, "direct", direct_broadcast, false, false, true, width_one},
	WINDOW(COLL_BROADCAST),
	{COLL_BARRIER, "doubling", doubling_barrier, false, false, true, width_log},
	WINDOW(COLL_BARRIER),
};
#define ALGORITHMS ((int)(sizeof table / sizeof table[0]))

const struct algorithm *algorithm_at(int i)
{
	return i < ALGORITHMS ? &table[i] : NULL;
}

const struct algorithm *algorithm_find(enum collective collective, const char *name)
{
	for (int i = 0; i < ALGORITHMS; i++)
		if (table[i].collective == collective && strcmp(table[i].name, name) == 0)
			return &table[i];
	return NULL;
}

struct plan *algorithm_plan(const struct algorithm *a, int rank, int size, int root, bool in_place,
			    bool staged)
{
	uint32_t n = (uint32_t)size, in = a->in_parts ? n : 1, out = a->out_parts ? n : 1;
	struct plan_shape shape = {.in_chunks = in, .out_chunks = out};
	if (in < out)
		shape.in_base = (uint32_t)rank;
	if (out < in)
		shape.out_base = (uint32_t)rank;
	struct plan *p = plan_new(rank, size, shape, staged);
	if (!p)
		return NULL;
	struct span to = span(BUF_OUT, 0, out), from = span(BUF_IN, 0, in);
	struct group g = {
		.me = (rank - root + size) % size, .size = size, .stride = 1, .shift = root};
	a->build(p, g, in_place && in == out ? to : from, to);
	return plan_end(p);
}

/* ---- TUTTI_ALGO ------------------------------------------------------------------------------ */

static const char *parse_bytes(const char *text, size_t *bytes)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);
	if (end == text || *text == '-')
		return NULL;
	int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
	*bytes = (size_t)n << shift;
	return shift ? end + 1 : end;
}

static tutti_status list_names(const char *rule, enum collective c)
{
	char all[160] = "";
	for (int i = 0; i < ALGORITHMS; i++)
		if (table[i].collective == c)
			snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
				 all[0] ? ", " : "", table[i].name);
	return fail(TUTTI_ERR_INVALID, "TUTTI_ALGO: \"%s\" names no algorithm of %s; there are %s",
		    rule, collective_name(c), all);
}

static tutti_status parse_range(struct select_rule *r, const char *rule, const char *range)
{
	const char *at = parse_bytes(range, &r->first);
	if (at && *at == '-')
		at = at[1] ? parse_bytes(at + 1, &r->last) : at + 1;
	if (!at || *at || r->first > r->last)
		return fail(TUTTI_ERR_INVALID,
			    "TUTTI_ALGO: the sizes of \"%s\" are not like 64K-1M", rule);
	return TUTTI_OK;
}

/* collective[:first-last]=name */
static tutti_status parse_rule(struct select_rule *r, const char *rule)
{
	char text[128];
	snprintf(text, sizeof text, "%s", rule);
	char *name = strchr(text, '='), *range;
	if (!name)
		return fail(TUTTI_ERR_INVALID,
			    "TUTTI_ALGO: \"%s\" is not like all_reduce:64K-1M=ring", rule);
	*name++ = '\0';
	if ((range = strchr(text, ':')))
		*range++ = '\0';
	*r = (struct select_rule){.collective = COLL_COUNT, .last = SIZE_MAX};
	for (int c = 0; c < COLL_PATTERNS; c++)
		if (strcmp(collective_name((enum collective)c), text) == 0)
			r->collective = (enum collective)c;
	if (r->collective == COLL_COUNT)
		return fail(
			TUTTI_ERR_INVALID,
			"TUTTI_ALGO: \"%s\" is no collective; there are all_reduce, all_gather, "
			"reduce_scatter, broadcast, barrier",
			text);
	if (range)
		TRY(parse_range(r, rule, range));
	r->algorithm = algorithm_find(r->collective, name);
	return r->algorithm ? TUTTI_OK : list_names(rule, r->collective);
}

tutti_status select_parse(struct select *s, const char *text)
{
	char copy[1024];
	s->rules = 0;
	if (!text || !*text)
		return TUTTI_OK;
	if (strlen(text) >= sizeof copy)
		return fail(TUTTI_ERR_INVALID, "TUTTI_ALGO is longer than %zu bytes",
			    sizeof copy - 1);
	memcpy(copy, text, strlen(text) + 1);
	char *rest = copy;
	for (char *rule; (rule = strsep(&rest, ","));) {
		if (s->rules == SELECT_RULES_MAX)
			return fail(TUTTI_ERR_INVALID, "TUTTI_ALGO has more than %d rules",
				    SELECT_RULES_MAX);
		TRY(parse_rule(&s->rule[s->rules++], rule));
	}
	return TUTTI_OK;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static bool is_reduction(enum collective c)
{
	c = collective_pattern(c);
	return c == COLL_ALL_REDUCE || c == COLL_REDUCE_SCATTER;
}

/* An average of integers is exact only where all contributions meet in a wider type. */
static const char *why_not(const struct select *s, const struct algorithm *a,
			   const struct call_args *args)
{
	if (!a->build && !s->has_window)
		return "the ranks do not share memory (or TUTTI_WINDOW=0, or a filter without shm)";
	if (!is_reduction(args->collective))
		return NULL;
	if (a->is_exact)
		return a->build && s->size > PLAN_SOURCES_MAX
			       ? "direct exchange reduces at most 1024 contributions at once"
			       : NULL;
	if (args->op == TUTTI_AVG && !dtype_is_float(args->dtype))
		return "an average of integers needs all contributions at once";
	if (s->deterministic)
		return "config.deterministic admits only the fixed association";
	return NULL;
}

static const char *default_name(const struct select *s, const struct call_args *args)
{
	size_t bytes = args->count * dtype_bytes(args->dtype);
	bool few = s->size <= 16;

	switch (collective_pattern(args->collective)) {
	case COLL_ALL_REDUCE:
		/* Two ranks that exchange all they have send direct exchange's bytes in half its
		 * rounds. */
		if (s->size <= 2 || bytes <= 8192 || (!few && bytes <= 65536))
			return "doubling";
		if (s->size > PLAN_SOURCES_MAX)
			return "ring";
		return few || bytes <= 1 << 20 ? "direct" : "ring";
	case COLL_REDUCE_SCATTER:
		if (s->size > PLAN_SOURCES_MAX)
			return "ring";
		/* fall through */
	case COLL_ALL_GATHER:
		return few || bytes <= 65536 ? "direct" : "ring";
	case COLL_BROADCAST:
		return bytes <= 65536 || s->size <= 2 ? "doubling" : "ring";
	default:
		return "doubling";
	}
}

tutti_status select_algorithm(const struct select *s, const struct call_args *args,
			      const struct algorithm **algorithm)
{
	size_t bytes = args->count * dtype_bytes(args->dtype);
	enum collective c = collective_pattern(args->collective);
	const struct algorithm *a = NULL;

	for (int i = 0; i < s->rules && !a; i++)
		if (s->rule[i].collective == c && bytes >= s->rule[i].first &&
		    bytes <= s->rule[i].last)
			a = s->rule[i].algorithm;
	if (a) {
		const char *why = why_not(s, a, args);
		*algorithm = a;
		return why ? fail(TUTTI_ERR_UNSUPPORTED, "TUTTI_ALGO forces %s for %s, but %s",
				  a->name, collective_name(args->collective), why)
			   : TUTTI_OK;
	}
	a = algorithm_find(c, s->has_window ? "window" : default_name(s, args));
	if (why_not(s, a, args))
		a = algorithm_find(c, "direct");
	*algorithm = a;
	const char *why = why_not(s, a, args);
	return why ? fail(TUTTI_ERR_UNSUPPORTED, "no algorithm serves %s on %d ranks: %s",
			  collective_name(args->collective), s->size, why)
		   : TUTTI_OK;
}
