/* Says what is in a plan; tutti-plan show prints it. */
#include "look.h"

#include "arguments.h"

#include "tools/must.h"

#include <stdio.h>
#include <string.h>

struct nodes look_nodes(const struct plan_set *set)
{
	int local = set->size / set->nodes;
	if (set->in_turn)
		return (struct nodes){set->nodes, local, 1, set->nodes};
	return nodes_in_order(set->size, set->nodes);
}

const char *look_why_not(const struct algorithm *a, int size, int nodes)
{
	struct nodes where = nodes_in_order(size, nodes);
	bool several = nodes > 1 && nodes < size;
	struct select select = {.size = size, .nodes = several ? &where : NULL};
	struct call_args args = {.collective = a->collective, .op = TUTTI_SUM, .count = 1};
	return a->build ? select_why_not(&select, a, &args)
			: "it has no plan: ranks load and store each other's memory";
}

size_t look_bytes(const struct plan *p)
{
	size_t edges = 0, refs = 0;

	for (uint32_t i = 0; i < p->count; i++) {
		edges += p->steps[i].succs;
		refs += p->steps[i].refs;
	}
	return sizeof *p + p->count * (sizeof *p->steps + sizeof *p->order) +
	       p->lane_count * sizeof *p->lanes + edges * sizeof *p->edges +
	       refs * sizeof *p->refs + p->chunks[BUF_TMP] * sizeof *p->tmp;
}

struct plan *look_build(const struct plan_set *set, int rank)
{
	struct nodes nodes = look_nodes(set);
	struct plan_key key = {.rank = rank,
			       .size = set->size,
			       .root = set->root,
			       .in_place = set->in_place,
			       .options = set->options,
			       .nodes = set->nodes > 1 ? &nodes : NULL};
	return must_have(algorithm_plan(set->algorithm, &key));
}

void look_build_all(struct plan_set *set)
{
	set->of = must_alloc((size_t)set->size, sizeof(struct plan *));
	for (int r = 0; r < set->size; r++)
		set->of[r] = look_build(set, r);
}

void look_free_all(struct plan_set *set)
{
	for (int r = 0; set->of && r < set->size; r++)
		plan_free(set->of[r]);
	free(set->of);
	set->of = NULL;
}

static struct refs look_listed(const struct plan *p, const struct step *s)
{
	return (struct refs){p->refs + s->ref, s->refs};
}

struct refs look_reads(const struct plan *p, uint32_t step)
{
	const struct step *s = &p->steps[step];
	return s->kind == STEP_RECV ? (struct refs){NULL, 0} : look_listed(p, s);
}

struct refs look_writes(const struct plan *p, uint32_t step)
{
	const struct step *s = &p->steps[step];
	if (s->kind == STEP_RECV)
		return look_listed(p, s);
	return s->kind == STEP_SEND ? (struct refs){NULL, 0} : (struct refs){&s->dst, 1};
}

struct refs look_message(const struct plan *p, uint32_t step)
{
	return p->steps[step].kind == STEP_SEND ? look_reads(p, step) : look_writes(p, step);
}

uint32_t look_cells(const struct plan *p)
{
	return p->chunks[BUF_IN] + p->chunks[BUF_OUT] + p->chunks[BUF_TMP];
}

/* In place the chunk of IN that is as long as a chunk of OUT is that chunk. */
uint32_t look_cell(const struct plan *p, struct ref r, bool in_place)
{
	uint32_t in = p->chunks[BUF_IN], out = p->chunks[BUF_OUT];
	uint32_t at = r.chunk + p->shape_base[BUF_IN];

	if (r.buf == BUF_TMP)
		return in + out + r.chunk;
	if (r.buf == BUF_OUT)
		return in + r.chunk;
	if (in_place && at >= p->shape_base[BUF_OUT] && at - p->shape_base[BUF_OUT] < out)
		return in + at - p->shape_base[BUF_OUT];
	return r.chunk;
}

struct before look_before(const struct plan *p)
{
	struct before b = {must_alloc(p->count + 2, sizeof(uint32_t)), NULL};
	uint32_t edges = 0;

	for (uint32_t i = 0; i < p->count; i++)
		for (uint32_t k = 0; k < p->steps[i].succs; k++, edges++)
			b.first[p->edges[p->steps[i].succ + k] + 2]++;
	b.at = must_alloc(edges, sizeof(uint32_t));
	for (uint32_t i = 2; i < p->count + 2; i++)
		b.first[i] += b.first[i - 1];
	for (uint32_t i = 0; i < p->count; i++)
		for (uint32_t k = 0; k < p->steps[i].succs; k++)
			b.at[b.first[p->edges[p->steps[i].succ + k] + 1]++] = i;
	return b;
}

void look_before_free(struct before *b)
{
	free(b->first);
	free(b->at);
}

#define CHUNK_LISTS_MAX 6

/* How many of refs from i on are a run of neighbours. */
static uint32_t look_neighbours(struct refs refs, uint32_t i)
{
	uint32_t n = 1;
	while (i + n < refs.n && refs.at[i + n].buf == refs.at[i].buf &&
	       refs.at[i + n].chunk == refs.at[i].chunk + n)
		n++;
	return n;
}

struct look_refs_text look_refs_in_words(struct refs refs)
{
	static const char *const names[] = {"IN", "OUT", "scratch"};
	struct look_refs_text words = {"nothing"};
	char *text = words.text;
	size_t at = 0, bytes = sizeof words.text;
	uint32_t lists = 0;

	for (uint32_t i = 0, n; i < refs.n && at < bytes; i += n, lists++) {
		const char *name = refs.at[i].buf < BUF_COUNT ? names[refs.at[i].buf] : "?";
		const char *comma = i ? ", " : "";
		n = look_neighbours(refs, i);
		if (lists == CHUNK_LISTS_MAX) {
			snprintf(text + at, bytes - at, " and %u more", refs.n - i);
			break;
		}
		if (n == 1)
			at += (size_t)snprintf(text + at, bytes - at, "%s%s[%u]", comma, name,
					       refs.at[i].chunk);
		else
			at += (size_t)snprintf(text + at, bytes - at, "%s%s[%u..%u]", comma, name,
					       refs.at[i].chunk, refs.at[i].chunk + n - 1);
	}
	return words;
}

static struct look_step_text look_operation_in_words(const struct plan *p, uint32_t step)
{
	const struct step *s = &p->steps[step];
	struct look_refs_text from = look_refs_in_words(look_reads(p, step));
	struct look_refs_text to = look_refs_in_words(look_writes(p, step));
	struct look_step_text words;
	const char *reads = from.text, *writes = to.text;
	char *text = words.text;
	size_t bytes = sizeof words.text;

	switch (s->kind) {
	case STEP_SEND:
		snprintf(text, bytes, "send %s to rank %d", reads, s->peer);
		break;
	case STEP_RECV:
		snprintf(text, bytes, "receive %s from rank %d", writes, s->peer);
		break;
	case STEP_RECV_REDUCE:
		snprintf(text, bytes, "%s = %s + what comes from rank %d", writes, reads, s->peer);
		break;
	case STEP_REDUCE:
		snprintf(text, bytes, "%s = sum of %s", writes, reads);
		break;
	case STEP_COPY:
		snprintf(text, bytes, "%s = %s", writes, reads);
		break;
	case STEP_SCALE:
		snprintf(text, bytes, "%s = %s, scaled", writes, reads);
		break;
	case STEP_FINISH:
		snprintf(text, bytes, "%s is complete", writes);
		break;
	default:
		snprintf(text, bytes, "of kind %d, which there is not", (int)s->kind);
	}
	return words;
}

struct look_step_text look_step_in_words(const struct plan *p, uint32_t step)
{
	struct look_step_text words;

	snprintf(words.text, sizeof words.text, "step %u (%.400s)", step,
		 look_operation_in_words(p, step).text);
	return words;
}

/* Tutti-plan show */

#define LISTED_MAX 8

static void look_print_before(const struct before *b, uint32_t step)
{
	uint32_t n = b->first[step + 1] - b->first[step];

	for (uint32_t i = 0; i < n && i < LISTED_MAX; i++)
		printf("%s%u", i ? ", " : "", b->at[b->first[step] + i]);
	if (n > LISTED_MAX)
		printf(" and %u more", n - LISTED_MAX);
	puts(n ? "" : "-");
}

static void look_print_plan(const struct plan_set *set, const struct plan *p)
{
	struct before before = look_before(p);
	int width = 4;

	for (uint32_t s = 0; s < p->count; s++) {
		int n = (int)strlen(look_operation_in_words(p, s).text);
		width = n > width ? n : width;
	}
	width = width > 60 ? 60 : width;
	printf("%s %s, rank %d of %d: %u step%s on %u lane%s; chunks: %u IN, %u OUT, %u scratch\n",
	       collective_name(set->algorithm->collective), set->algorithm->name, p->rank, p->size,
	       p->count, p->count == 1 ? "" : "s", p->lane_count, p->lane_count == 1 ? "" : "s",
	       p->chunks[BUF_IN], p->chunks[BUF_OUT], p->chunks[BUF_TMP]);
	if (p->count)
		printf("  step  %-*s  %-10s after\n", width, "does", "lane");
	for (uint32_t s = 0; s < p->count; s++) {
		const struct lane *l = &p->lanes[p->steps[s].lane];
		printf("  %4u  %-*s  ", s, width, look_operation_in_words(p, s).text);
		if (l->peer < 0)
			printf("%-10s ", "local");
		else
			printf("%s %-*d ", l->sends ? "to" : "from", l->sends ? 7 : 5, l->peer);
		look_print_before(&before, s);
	}
	look_before_free(&before);
}

int plan_show(const struct arguments *a)
{
	struct plan_set set = {.algorithm = a->algorithm,
			       .size = a->ranks.of[0].first,
			       .root = a->root < 0 ? 0 : a->root,
			       .nodes = a->nodes ? a->nodes : 1,
			       .in_place = a->in_place,
			       .options = a->options};
	const char *why = look_why_not(a->algorithm, set.size, set.nodes);
	int first = a->rank < 0 ? 0 : a->rank, last = a->rank < 0 ? set.size - 1 : a->rank;

	if (why) {
		fprintf(stderr, "tutti-plan: There is no plan of %s for %d ranks: %s.\n",
			a->algorithm->name, set.size, why);
		return 1;
	}
	for (int r = first; r <= last; r++) {
		struct plan *p = look_build(&set, r);
		if (r > first)
			puts("");
		look_print_plan(&set, p);
		plan_free(p);
	}
	return 0;
}
