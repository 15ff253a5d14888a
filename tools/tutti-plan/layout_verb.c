/* tutti-plan layout: the fastest ways to place a GPT on the ranks of a machine. */
#include "arguments.h"
#include "cpu_rate.h"
#include "layout_search.h"
#include "units.h"

#include "core/memory/dtype.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *strategy_in_words(tutti_strategy strategy)
{
	static const char *const names[] = {"ddp", "zero1", "zero2", "fsdp", "hsdp"};

	return names[strategy];
}

static struct layout_question question_of(const struct arguments *a)
{
	int ranks = a->ranges[0].first;

	return (struct layout_question){
		.model = a->model,
		.ranks = ranks,
		.nodes = a->nodes ? a->nodes : 1,
		.batch = a->batch ? a->batch : 8 * ranks,
		.micro_batches = a->shape.micro_batches,
		.dtype = a->dtype,
		.has_weights = !a->flash_attention,
		.memory = (double)a->memory,
		.rate = a->rate > 0 ? a->rate : cpu_rate_measure(),
		.overhead = a->layer_overhead,
		.machine = &a->machine,
		.prices = price_book_open(),
	};
}

/* 1557611200 as 1.56 billion. */
static const char *count_in_words(double n, char *text, size_t bytes)
{
	static const char *const names[] = {"", " thousand", " million", " billion", " trillion"};
	int i = 0;

	for (; n >= 1000 && i < 4; i++)
		n /= 1000;
	snprintf(text, bytes, "%.3g%s", n, names[i]);
	return text;
}

static void layout_verb_print_head(const struct arguments *a, const struct layout_question *q)
{
	const struct gpt_sizes *m = &q->model;
	double elements = m->layers * gpt_layer_elements(m, 1) + gpt_embedding_elements(m, 1) +
			  gpt_head_elements(m);
	char count[32], memory[32], machine[2][200];

	printf("a GPT of %s parameters in %s: %d layers, %d heads, %d channels, %d tokens in the "
	       "vocabulary, %d in a sequence\n",
	       count_in_words(elements, count, sizeof count), dtype_name(q->dtype), m->layers,
	       m->heads, m->channels, m->vocab, m->length);
	printf("%d rank%s on %d node%s, %d sequences a step; a rank has %s and does %.4g "
	       "GFLOP/s%s\n",
	       q->ranks, q->ranks > 1 ? "s" : "", q->nodes, q->nodes > 1 ? "s" : "", q->batch,
	       q->memory > 0 ? units_bytes_in_words(q->memory, memory, sizeof memory)
			     : "memory without end",
	       q->rate / 1e9, a->rate > 0 ? "" : ", as measured on a core here (--flops sets it)");
	machine_in_words(a, machine);
	printf("%s\n%s%s", machine[0], machine[1], machine[1][0] ? "\n" : "");
	if (cores_are_shared(q))
		printf("%d ranks share %g cores of a node\n", q->ranks / q->nodes,
		       a->machine.links.cores);
}

static void layout_verb_print_row(const struct found_layout *f)
{
	const struct candidate *c = &f->candidate;
	char strategy[24];

	if (c->strategy == TUTTI_HSDP)
		snprintf(strategy, sizeof strategy, "hsdp of %d", c->shard_size);
	else
		snprintf(strategy, sizeof strategy, "%s",
			 candidate_replicas(c) > 1 ? strategy_in_words(c->strategy) : "-");
	printf("%4d %4d %4d %4d  %-10s %-11s %6d %5d  %-9s %8.3f %10.4g %7.0f%% %5.0f%% %5.0f%% "
	       "%5.0f%%\n",
	       c->dp, c->cp, c->pp, c->tp, strategy, c->pp > 1 ? schedule_name(c->schedule) : "-",
	       c->chunks, c->micro_batches, c->recomputes ? "yes" : "no",
	       held_sum(&f->held) / 0x1p30, f->step.seconds, 100 * f->step.compute,
	       100 * f->step.tensor, 100 * f->step.bubble, 100 * f->step.data);
}

static void layout_verb_print_table(const struct layout_search *s)
{
	printf("%4s %4s %4s %4s  %-10s %-11s %6s %5s  %-9s %8s %10s %8s %6s %6s %6s\n", "dp", "cp",
	       "pp", "tp", "strategy", "schedule", "chunks", "micro", "recompute", "GiB", "step, s",
	       "compute", "tp+cp", "bubble", "dp");
	for (int i = 0; i < s->found; i++)
		layout_verb_print_row(&s->best[i]);
	printf("%zu combinations, of which %d had to be timed: the others are slower or do not "
	       "fit\n",
	       s->count, s->simulated);
}

static void layout_verb_write_row(FILE *file, const struct found_layout *f)
{
	const struct candidate *c = &f->candidate;

	fprintf(file, "%d,%d,%d,%d,%s,%d,%s,%d,%d,%d,%.0f,%.0f,%.0f,%.9g,%.4f,%.4f,%.4f,%.4f\n",
		c->dp, c->cp, c->pp, c->tp, strategy_in_words(c->strategy), c->shard_size,
		schedule_name(c->schedule), c->chunks, c->micro_batches, c->recomputes,
		f->held.trainer, f->held.activations, f->held.messages, f->step.seconds,
		f->step.compute, f->step.tensor, f->step.bubble, f->step.data);
}

static int write_csv(const char *path, const struct layout_search *s)
{
	FILE *file = fopen(path, "w");

	if (file)
		fprintf(file, "dp,cp,pp,tp,strategy,shard_size,schedule,chunks,micro_batches,"
			      "recomputes,trainer_bytes,activation_bytes,message_bytes,step_s,"
			      "compute,tensor,bubble,data\n");
	for (int i = 0; file && i < s->found; i++)
		layout_verb_write_row(file, &s->best[i]);
	if (!file || (ferror(file) | fclose(file))) {
		fprintf(stderr, "tutti-plan: '%s' could not be written: %s.\n", path,
			strerror(errno));
		return 1;
	}
	return 0;
}

static void print_misfits(const struct layout_search *s)
{
	static const char *const reasons[MISFITS] = {
		[MISFIT_HEADS] = "tp does not divide the heads",
		[MISFIT_LAYERS] = "pp has more stages than there are layers",
		[MISFIT_LENGTH] = "cp does not divide a sequence into two equal parts a rank",
		[MISFIT_TOKENS] = "tp does not divide the tokens of a sequence that a rank has",
		[MISFIT_BATCH] = "dp and the micro-batches do not divide the sequences",
	};

	for (int i = 0; i < MISFITS; i++)
		if (s->misfits[i])
			printf("left out: %d mesh%s where %s\n", s->misfits[i],
			       s->misfits[i] > 1 ? "es" : "", reasons[i]);
}

static int layout_verb_nothing(const struct layout_search *s, const struct layout_question *q)
{
	const struct candidate *c = &s->least.candidate;
	char limit[32], least[32];

	if (s->count == 0)
		fprintf(stderr, "tutti-plan: No mesh of %d ranks is possible.\n", q->ranks);
	else
		fprintf(stderr,
			"tutti-plan: Nothing fits into %s. The least memory is %s, with dp=%d "
			"cp=%d "
			"pp=%d tp=%d, %s, %s, %d micro-batches%s.\n",
			units_bytes_in_words(q->memory, limit, sizeof limit),
			units_bytes_in_words(held_sum(&s->least.held), least, sizeof least), c->dp,
			c->cp, c->pp, c->tp, strategy_in_words(c->strategy),
			c->pp > 1 ? schedule_name(c->schedule) : "no pipeline", c->micro_batches,
			c->recomputes ? " and recomputation" : "");
	return 1;
}

int plan_layout(const struct arguments *a)
{
	struct layout_question q = question_of(a);
	struct layout_search search;

	layout_verb_print_head(a, &q);
	layout_search_open(&search, &q);
	layout_search_run(&search, &q, a->top);
	if (search.found)
		layout_verb_print_table(&search);
	print_misfits(&search);
	int code = search.found ? 0 : layout_verb_nothing(&search, &q);
	if (code == 0 && a->csv)
		code = write_csv(a->csv, &search);
	layout_search_close(&search);
	free(q.prices);
	return code;
}
