/* Which options go together. */
#include "options.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int options_have_mesh(const struct options *o)
{
	return o->ep || o->pp || o->cp || o->tp;
}

/* Returns 0. */
static int options_check_refuse(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fputs("gpt: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	return 0;
}

static int options_check_divides(const char *axis, int by, const char *what, int count)
{
	return count % by == 0 ||
	       options_check_refuse("%d %s cannot be divided by %s %d", count, what, axis, by);
}

/* 1 for an axis that is not there. */
static int options_check_size_of(int axis)
{
	return axis ? axis : 1;
}

/* Between averages the ranks of local SGD have values of their own, which cannot be saved, sampled
 * or exported as one model. */
static int is_averaged(const struct options *o, const char *name, int steps)
{
	int between = o->flags.config.local_sgd_steps;

	if (o->flags.config.strategy != TUTTI_LOCAL_SGD || steps % between == 0)
		return 1;
	return options_check_refuse(
		"--%s %d is not possible with local_sgd, whose ranks have the same values "
		"only when they average (--local-steps %d): %lld is the next multiple",
		name, steps, between, ((long long)steps / between + 1) * between);
}

/* A group's tokens stay on one rank of "cp" and "tp". */
static int check_experts(const struct options *o)
{
	int part = o->length / options_check_size_of(o->cp);
	int half = options_check_size_of(o->cp) > 1 ? part / 2 : part,
	    own = part / options_check_size_of(o->tp);
	const char *what = "neighbouring tokens of a rank";

	if (!o->experts)
		return options_check_size_of(o->ep) == 1 ||
		       options_check_refuse("--ep %d is not possible: there are no --experts",
					    o->ep);
	return options_check_divides("--ep", options_check_size_of(o->ep), "experts", o->experts) &&
	       options_check_divides("--expert-group", o->expert_group, what, half) &&
	       options_check_divides("--expert-group", o->expert_group, what, own);
}

/* "cp" has pairs of parts of a sequence. */
static int check_tokens(const struct options *o)
{
	int cp = options_check_size_of(o->cp), tp = options_check_size_of(o->tp);

	if (cp > 1 &&
	    !options_check_divides("twice --cp,", 2 * cp, "characters (--seq)", o->length))
		return 0;
	return options_check_divides("--tp", tp, "characters of a rank (--seq by --cp)",
				     o->length / cp);
}

static int check_heads(const struct options *o)
{
	int tp = options_check_size_of(o->tp);

	if (!options_check_divides("--heads", o->heads, "channels", o->channels) ||
	    !options_check_divides("--tp", tp, "heads", o->heads))
		return 0;
	return !o->by_heads ||
	       options_check_divides("--cp", options_check_size_of(o->cp),
				     "heads of a rank (--heads by --tp)", o->heads / tp);
}

static int options_check_stages(const struct options *o)
{
	bool has_chunks = o->schedule == TUTTI_INTERLEAVED || o->schedule == TUTTI_ZERO_BUBBLE;

	if (o->chunks > 1 && (!has_chunks || options_check_size_of(o->pp) == 1))
		return options_check_refuse(
			"--chunks %d is not possible but with --pp and --schedule "
			"interleaved or zero_bubble",
			o->chunks);
	if (o->pp * o->chunks > o->layers)
		return options_check_refuse("--pp %d is not possible: %d layers make no %d stages",
					    o->pp, o->layers, o->pp * o->chunks);
	if (o->recompute && o->pp > 1 && o->schedule == TUTTI_ZERO_BUBBLE)
		return options_check_refuse(
			"--recompute is not possible with zero_bubble, which would compute "
			"everything three times");
	return 1;
}

/* Two names of one number. */
static int check_micro_batches(const struct options *o)
{
	return !o->micro_batches || !o->flags.accumulate ||
	       o->micro_batches == o->flags.accumulate ||
	       options_check_refuse(
		       "--micro-batches %d and --accumulate %d differ: give one of them",
		       o->micro_batches, o->flags.accumulate);
}

/* So have --ranks and --devices, or --gpus. */
static int check_ranks(const struct options *o)
{
	int devices = o->flags.devices > 0 ? o->flags.devices : o->flags.num_gpus;

	return !o->ranks || !devices || o->ranks == devices ||
	       options_check_refuse("--ranks %d and %s %d differ: give one of them", o->ranks,
				    o->flags.devices > 0 ? "--devices" : "the number of --gpus,",
				    devices);
}

static int check_resume(const struct options *o)
{
	return strcmp(o->flags.resume, "auto") != 0 || o->save ||
	       options_check_refuse(
		       "--resume auto is not possible without --save, the folder that it looks in");
}

int options_check(const struct options *o)
{
	if (!check_ranks(o) || !check_micro_batches(o) || !check_resume(o))
		return 0;
	if (o->dp && !options_have_mesh(o))
		return options_check_refuse(
			"--dp %d is not possible without another axis; with --tp 1 each rank "
			"has whole layers",
			o->dp);
	return check_heads(o) && check_tokens(o) && check_experts(o) && options_check_stages(o) &&
	       is_averaged(o, "steps", o->steps) &&
	       (!o->save || o->save_every >= o->steps ||
		is_averaged(o, "save-every", o->save_every));
}
