/* Reads the command line. */
#include "options.h"

#include "gpt.h"
#include "place.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { INT, COUNT, REAL, PATH, FLAG, SCHEDULE, DTYPE };

/* An option, the field that it sets, its kind, the least and the most of a number, and what it is
 * if it is not given; NULL: 0, of which help says what it means. */
static const struct setting {
	const char *name;
	size_t field;
	enum kind kind;
	double least, most;
	const char *preset, *help;
} settings[] = {
#define AT(member) offsetof(struct options, member)
	{"ranks", AT(ranks), INT, 1, 4096, NULL,
	 "starts so many ranks, without a launcher; as --devices"},
	{"steps", AT(steps), INT, 0, 1e9, "200", "updates"},
	{"batch", AT(batch), INT, 1, 65536, "8", "sequences in a step, of all ranks together"},
	{"micro-batches", AT(micro_batches), INT, 1, 65536, NULL,
	 "parts in which each rank does its sequences (1)"},
	{"seq", AT(length), INT, 1, GPT_MAX_LENGTH, "64", "characters in a sequence"},
	{"layers", AT(layers), INT, 1, GPT_MAX_LAYERS, "2", "of the model"},
	{"heads", AT(heads), INT, 1, 64, "4", "of attention"},
	{"channels", AT(channels), INT, 1, 4096, "64", "of a token"},
	{"lr", AT(lr), REAL, 0, 1e6, "0.002", "AdamW's highest learning rate"},
	{"seed", AT(seed), COUNT, 0, 9e15, "1", "of first values and of the choice of sequences"},
	{"dtype", AT(flags.config.param_dtype), DTYPE, 0, 0, NULL,
	 "of parameters: f32, or bf16 or f16 with a master copy in f32 (f32)"},
	{"reduce", AT(flags.config.reduce_dtype), DTYPE, 0, 0, NULL,
	 "of travelling gradients: f32, or the type of parameters (f32)"},
	{"loss-scale", AT(flags.config.loss_scale), REAL, -1e9, 1e9, NULL,
	 "losses are multiplied by it; below 0: dynamic; 0: none (0)"},
	{"deterministic", AT(flags.config.deterministic), INT, 0, 2, NULL,
	 "1: the same bits at every strategy; 2: at every number of ranks too (0)"},
	{"prefetch", AT(flags.config.prefetch_units), INT, 1, 64, NULL,
	 "fsdp: units gathered ahead (1)"},
	{"shard-size", AT(flags.config.shard_size), INT, 1, 65536, NULL,
	 "hsdp: ranks in a shard group (those of a node)"},
	{"local-steps", AT(flags.config.local_sgd_steps), INT, 1, 1e9, "10",
	 "local_sgd: steps between averages, of which --steps is a multiple"},
	{"tp", AT(tp), INT, 1, 64, NULL,
	 "ranks that divide each layer: heads, columns and rows, vocabulary; and between them "
	 "tokens (no mesh)"},
	{"cp", AT(cp), INT, 1, 64, NULL, "ranks that divide each sequence (no mesh)"},
	{"pp", AT(pp), INT, 1, 64, NULL,
	 "ranks that have parts of the layers, as a pipeline of --micro-batches (no mesh)"},
	{"schedule", AT(schedule), SCHEDULE, 0, 0, "1f1b",
	 "gpipe, 1f1b, interleaved or zero_bubble"},
	{"chunks", AT(chunks), INT, 1, 64, "1", "interleaved, zero_bubble: stages on each rank"},
	{"experts", AT(experts), INT, 2, EXPERTS_MAX, NULL,
	 "of each layer, of which a token takes two (none)"},
	{"ep", AT(ep), INT, 1, EXPERTS_MAX, NULL,
	 "ranks that divide the experts; they have sequences of their own, as those of dp (no "
	 "mesh)"},
	{"expert-capacity", AT(expert_capacity), REAL, 0.1, 64, "1.25",
	 "tokens that an expert takes, times what all would have evenly"},
	{"expert-group", AT(expert_group), INT, 1, GPT_MAX_LENGTH, "8",
	 "tokens among which that holds"},
	{"expert-balance", AT(expert_balance), REAL, 0, 1e6, "0.01",
	 "of the loss that has them chosen evenly"},
	{"dp", AT(dp), INT, 1, 65536, NULL,
	 "on a mesh: replicas, or parts of the strategy (what the others leave)"},
	{"recompute", AT(recompute), FLAG, 0, 0, NULL,
	 "keeps no activations inside of layers, and computes them again"},
	{"shadow", AT(flags.config.shadow), FLAG, 0, 0, NULL,
	 "zero1, zero2, fsdp: each rank keeps its neighbour's part too"},
	{"memory-limit", AT(flags.config.memory_limit), COUNT, 1, 9e15, NULL,
	 "bytes that a rank's trainer may hold (no limit)"},
	{"offload", AT(flags.config.offload_dir), PATH, 0, 0, NULL,
	 "optimizer state in files there"},
	{"save", AT(save), PATH, 0, 0, NULL, "checkpoints; the newest one there is loaded first"},
	{"save-every", AT(save_every), INT, 1, 1e9, "50", "steps between them"},
	{"export", AT(export_to), PATH, 0, 0, NULL,
	 "all parameters in one safetensors file, at the end"},
	{"log", AT(log), PATH, 0, 0, NULL,
	 "loss, norm and rate as CSV, JSON lines and for TensorBoard"},
	{"report-every", AT(report_every), INT, 1, 1e9, "20",
	 "steps between lines with loss and speed"},
	{"sample", AT(sample), INT, 0, 1e9, "240", "characters that it writes at the end"},
	{"grow-wait", AT(grow_wait_s), INT, 1, 86400, "30",
	 "seconds for which ranks in the place of dead ones are waited for"},
	{"dump-loss", AT(dump_loss), PATH, 0, 0, NULL,
	 "rank 0 writes a line with step and loss for every step"},
	{"matmul", AT(matmul), PATH, 0, 0, NULL, NULL}, /* place_usage has it */
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static void options_print_usage(void)
{
	static const char *const values[] = {"N", "N", "X", "PATH", "", "S", "T"};

	printf("usage: %s [options] [file or folder ...]\n"
	       "Trains a small character-level GPT on the text (default: "
	       "/usr/share/common-licenses), alone or on\n"
	       "every rank that tuttirun, torchrun, srun or mpirun starts.\n",
	       place_program);
	for (const struct setting *s = settings; s->help; s++) {
		char option[32];
		snprintf(option, sizeof option, "%s %s", s->name, values[s->kind]);
		printf("  --%-19s %s%s%s%s\n", option, s->help, s->preset ? " (" : "",
		       s->preset ? s->preset : "", s->preset ? ")" : "");
	}
	printf("Those of every trainer (docs/flags.md); of --micro-batches and --accumulate one is "
	       "enough:\n%s%s",
	       tutti_train_config_help(), place_usage);
}

/* Whether text is a value of the option. */
static bool options_set(struct options *o, const struct setting *s, const char *text)
{
	static const char *const choices[][5] = {
		[SCHEDULE] = {"gpipe", "1f1b", "interleaved", "zero_bubble"},
		[DTYPE] = {"f32", "bf16", "f16"},
	};
	static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_BF16, TUTTI_F16};
	void *field = (char *)o + s->field;
	int choice = 0;
	char *end;

	while (s->kind >= SCHEDULE && choices[s->kind][choice] &&
	       strcmp(text, choices[s->kind][choice]) != 0)
		choice++;
	if (s->kind >= SCHEDULE && !choices[s->kind][choice])
		return false;
	if (s->kind == PATH)
		*(const char **)field = text;
	else if (s->kind == FLAG)
		*(int *)field = 1;
	else if (s->kind == DTYPE)
		*(tutti_dtype *)field = dtypes[choice];
	else if (s->kind >= SCHEDULE)
		*(int *)field = choice;
	if (s->kind >= PATH)
		return true;
	errno = 0;
	double value = strtod(text, &end);
	if (errno != 0 || end == text || *end != '\0' || !(value >= s->least && value <= s->most) ||
	    (s->kind != REAL && value != floor(value)))
		return false;
	if (s->kind == INT)
		*(int *)field = (int)value;
	else if (s->kind == COUNT)
		*(size_t *)field = (size_t)value;
	else
		*(float *)field = (float)value;
	return true;
}

/* Returns false. */
static bool options_refuse(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fputs("gpt: ", stderr);
	vfprintf(stderr, format, list);
	fputc('\n', stderr);
	va_end(list);
	return false;
}

/* A word of argv that is no option, or one without its value. */
static bool options_refuse_word(char *word, bool lacks_value)
{
	static const char *names[SETTINGS + 2] = {[SETTINGS] = "help"};
	char *const words[] = {word, word};

	for (int i = 0; i < SETTINGS; i++)
		names[i] = settings[i].name;
	if (lacks_value)
		options_refuse("%s needs a value", word);
	else if (tutti_train_config_rest(2, words, names) != TUTTI_OK)
		options_refuse("%s", tutti_comm_error(NULL));
	fprintf(stderr, "%s --help has all options\n", place_program);
	return false;
}

/* ---- what goes together ---- */

static bool options_divide(const char *axis, int by, const char *what, int count)
{
	return count % by == 0 ||
	       options_refuse("%d %s cannot be divided by %s %d", count, what, axis, by);
}

/* Between averages the ranks of local SGD have values of their own, which cannot be saved, sampled
 * or exported as one model. */
static bool options_are_averaged(const struct options *o, const char *name, int steps)
{
	int between = o->flags.config.local_sgd_steps;

	return o->flags.config.strategy != TUTTI_LOCAL_SGD || steps % between == 0 ||
	       options_refuse("--%s %d is not possible with local_sgd, whose ranks have the same "
			      "values only when they average (--local-steps %d): %lld is the next "
			      "multiple",
			      name, steps, between, ((long long)steps / between + 1) * between);
}

/* Two names of one number. */
static bool options_agree(const char *a, int first, const char *b, int second)
{
	return !first || !second || first == second ||
	       options_refuse("%s %d and %s %d differ: give one of them", a, first, b, second);
}

/* "cp" has pairs of parts of a sequence. A group's tokens stay on one rank of "cp" and "tp". */
static bool options_check_divisors(const struct options *o)
{
	int part = o->length / o->cp, half = o->cp > 1 ? part / 2 : part;
	const char *neighbours = "neighbouring tokens of a rank";

	if (!options_divide("--heads", o->heads, "channels", o->channels) ||
	    !options_divide("--tp", o->tp, "heads", o->heads) ||
	    (o->cp > 1 &&
	     !options_divide("twice --cp,", 2 * o->cp, "characters (--seq)", o->length)) ||
	    !options_divide("--tp", o->tp, "characters of a rank (--seq by --cp)", part))
		return false;
	if (!o->experts)
		return o->ep == 1 ||
		       options_refuse("--ep %d is not possible: there are no --experts", o->ep);
	return options_divide("--ep", o->ep, "experts", o->experts) &&
	       options_divide("--expert-group", o->expert_group, neighbours, half) &&
	       options_divide("--expert-group", o->expert_group, neighbours, part / o->tp);
}

static bool options_check_stages(const struct options *o)
{
	bool has_chunks = o->schedule == TUTTI_INTERLEAVED || o->schedule == TUTTI_ZERO_BUBBLE;

	if (o->chunks > 1 && (!has_chunks || o->pp == 1))
		return options_refuse("--chunks %d is not possible but with --pp and --schedule "
				      "interleaved or zero_bubble",
				      o->chunks);
	if (o->pp > 1 && o->pp * o->chunks > o->layers)
		return options_refuse("--pp %d is not possible: %d layers make no %d stages", o->pp,
				      o->layers, o->pp * o->chunks);
	return !o->recompute || o->pp == 1 || o->schedule != TUTTI_ZERO_BUBBLE ||
	       options_refuse("--recompute is not possible with zero_bubble, which would compute "
			      "everything three times");
}

static bool options_check(const struct options *o)
{
	int devices = o->flags.devices > 0 ? o->flags.devices : o->flags.num_gpus;
	const char *name = o->flags.devices > 0 ? "--devices" : "the number of --gpus,";

	if (!options_agree("--ranks", o->ranks, name, devices) ||
	    !options_agree("--micro-batches", o->micro_batches, "--accumulate",
			   o->flags.accumulate))
		return false;
	if (strcmp(o->flags.resume, "auto") == 0 && !o->save)
		return options_refuse("--resume auto is not possible without --save, the folder "
				      "that it looks in");
	if (o->dp && !o->has_mesh)
		return options_refuse("--dp %d is not possible without another axis; with --tp 1 "
				      "each rank has whole layers",
				      o->dp);
	return options_check_divisors(o) && options_check_stages(o) &&
	       options_are_averaged(o, "steps", o->steps) &&
	       (!o->save || o->save_every >= o->steps ||
		options_are_averaged(o, "save-every", o->save_every));
}

/* The options that no other trainer has. */
static bool options_read_own(struct options *o, int argc, char **argv)
{
	static char *default_paths[] = {"/usr/share/common-licenses"};
	struct option longs[SETTINGS + 2] = {[SETTINGS] = {"help", no_argument, NULL, 'h'}};
	int option, which = 0;
	char range[80];

	for (int i = 0; i < SETTINGS; i++)
		longs[i] = (struct option){
			settings[i].name,
			settings[i].kind == FLAG ? no_argument : required_argument, NULL, 1};
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", longs, &which)) != -1) {
		const struct setting *s = &settings[which];
		snprintf(range, sizeof range, ": it is a number from %g to %g", s->least, s->most);
		if (option == 'h') {
			options_print_usage();
			exit(0);
		}
		if (option == '?' || option == ':')
			return options_refuse_word(argv[optind - 1], option == ':');
		if (o->flags.precision[0] &&
		    (s->kind == DTYPE || s->field == AT(flags.config.loss_scale)))
			return options_refuse("--%s is not possible with --precision %s, which "
					      "sets it",
					      s->name, o->flags.precision);
		if (!options_set(o, s, optarg))
			return options_refuse(
				"--%s %s is not possible%s; %s --help has all options", s->name,
				optarg, s->most > 0 ? range : "", place_program);
	}
	o->paths = optind < argc ? argv + optind : default_paths;
	o->path_count = optind < argc ? argc - optind : 1;
	return true;
}

bool options_read(struct options *o, int argc, char **argv)
{
	*o = (struct options){.flags.config = {.max_grad_norm = 1, .check_replicas_every = 50}};
	for (int i = 0; i < SETTINGS; i++)
		if (settings[i].preset)
			options_set(o, &settings[i], settings[i].preset);
	if (tutti_train_config_read(&o->flags, &argc, argv) != TUTTI_OK)
		return options_refuse("%s", tutti_comm_error(NULL));
	if (!options_read_own(o, argc, argv))
		return false;
	o->has_mesh = o->ep || o->pp || o->cp || o->tp;
	o->ep = o->ep ? o->ep : 1;
	o->pp = o->pp ? o->pp : 1;
	o->cp = o->cp ? o->cp : 1;
	o->tp = o->tp ? o->tp : 1;
	if (!options_check(o))
		return false;
	if (!o->micro_batches)
		o->micro_batches = o->flags.accumulate ? o->flags.accumulate : 1;
	if (o->ranks)
		o->flags.devices = o->ranks;
	o->flags.config.grad_dtype = TUTTI_F32; /* in which the layers add, also with bf16 */
	o->flags.config.seed = o->seed;
	o->flags.config.offload_optimizer = o->flags.config.offload_dir != NULL;
	return true;
}
