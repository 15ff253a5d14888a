/* Reads the command line. */
#include "options.h"

#include "gpt.h"
#include "place.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	" [options] [file or folder ...]\n"
	"Trains a small character-level GPT on the text (default: /usr/share/common-licenses), "
	"alone or on\n"
	"every rank that tuttirun, torchrun, srun or mpirun starts.\n"
	"  --ranks N             starts so many ranks, without a launcher; as --devices (1)\n"
	"  --steps N             updates (200)\n"
	"  --batch N             sequences in a step, of all ranks together (8)\n"
	"  --micro-batches N     parts in which each rank does its sequences (1)\n"
	"  --seq N               characters in a sequence (64)\n"
	"  --layers N, --heads N, --channels N     of the model (2, 4, 64)\n"
	"  --lr X                AdamW's highest learning rate (0.002)\n"
	"  --seed N              of first values and of the choice of sequences (1)\n"
	"  --dtype T             of parameters: f32, or bf16 or f16 with a master copy in f32 "
	"(f32)\n"
	"  --reduce T            of travelling gradients: f32, or the type of parameters (f32)\n"
	"  --loss-scale X        losses are multiplied by it; below 0: dynamic; 0: none (0)\n"
	"  --deterministic N     1: the same bits at every strategy; 2: at every number of ranks "
	"too (0)\n"
	"  --prefetch N          fsdp: units gathered ahead (1)\n"
	"  --shard-size N        hsdp: ranks in a shard group (those of a node)\n"
	"  --local-steps N       local_sgd: steps between averages (10), of which --steps is a "
	"multiple\n"
	"  --tp N                ranks that divide each layer: heads, columns and rows, "
	"vocabulary; "
	"and between them tokens (no mesh)\n"
	"  --cp N                ranks that divide each sequence (no mesh)\n"
	"  --cp-form F           ring: keys and values come from rank to rank; heads: each rank "
	"has "
	"some heads of whole sequences (ring)\n"
	"  --pp N                ranks that have parts of the layers, as a pipeline of "
	"--micro-batches (no mesh)\n"
	"  --schedule S          gpipe, 1f1b, interleaved or zero_bubble (1f1b)\n"
	"  --chunks N            interleaved, zero_bubble: stages on each rank (1)\n"
	"  --experts N           of each layer, of which a token takes two (none)\n"
	"  --ep N                ranks that divide the experts; they have sequences of their own, "
	"as those of dp (no mesh)\n"
	"  --expert-capacity X   tokens that an expert takes, times what all would have evenly "
	"(1.25)\n"
	"  --expert-group N      tokens among which that holds (8)\n"
	"  --expert-balance X    of the loss that has them chosen evenly (0.01)\n"
	"  --dp N                on a mesh: replicas, or parts of the strategy (what the others "
	"leave)\n"
	"  --recompute           keeps no activations inside of layers, and computes them again\n"
	"  --whole-tensors       shards are whole tensors\n"
	"  --shadow              zero1, zero2, fsdp: each rank keeps its neighbour's part too\n"
	"  --memory-limit N      bytes that a rank's trainer may hold (no limit)\n"
	"  --offload FOLDER      optimizer state in files there\n"
	"  --save FOLDER         checkpoints; the newest one there is loaded first\n"
	"  --save-every N        steps between them (50)\n"
	"  --export FILE         all parameters in one safetensors file, at the end\n"
	"  --log FOLDER          loss, norm and rate as CSV, JSON lines and for TensorBoard\n"
	"  --report-every N      steps between lines with loss and speed (20)\n"
	"  --sample N            characters that it writes at the end (240)\n"
	"  --grow-wait S          seconds for which ranks in the place of dead ones are waited for "
	"(30)\n"
	"  --dump-loss FILE      rank 0 writes a line with step and loss for every step\n"
	"Those of every trainer (docs/flags.md); of --micro-batches and --accumulate one is "
	"enough:\n";

static const char *default_paths[] = {"/usr/share/common-licenses"};

enum kind { INT, SIZE, SEED, REAL, SINGLE, TEXT, SCHEDULE, FORM, DTYPE, FLAG };

/* An option and the field that it sets. */
#define FIELD(member) offsetof(struct options, member)
static const struct setting {
	const char *name;
	enum kind kind;
	size_t field;
	double least, most;
} settings[] = {
	{"ranks", INT, FIELD(ranks), 1, 4096},
	{"steps", INT, FIELD(steps), 0, 1e9},
	{"batch", INT, FIELD(batch), 1, 65536},
	{"micro-batches", INT, FIELD(micro_batches), 1, 65536},
	{"seq", INT, FIELD(length), 1, GPT_MAX_LENGTH},
	{"layers", INT, FIELD(layers), 1, GPT_MAX_LAYERS},
	{"heads", INT, FIELD(heads), 1, 64},
	{"channels", INT, FIELD(channels), 1, 4096},
	{"lr", REAL, FIELD(lr), 0, 1e6},
	{"seed", SEED, FIELD(seed), 0, 9e15},
	{"dtype", DTYPE, FIELD(flags.config.param_dtype), 0, 0},
	{"reduce", DTYPE, FIELD(flags.config.reduce_dtype), 0, 0},
	{"loss-scale", SINGLE, FIELD(flags.config.loss_scale), -1e9, 1e9},
	{"deterministic", INT, FIELD(flags.config.deterministic), 0, 2},
	{"prefetch", INT, FIELD(flags.config.prefetch_units), 1, 64},
	{"shard-size", INT, FIELD(flags.config.shard_size), 1, 65536},
	{"local-steps", INT, FIELD(flags.config.local_sgd_steps), 1, 1e9},
	{"tp", INT, FIELD(tp), 1, 64},
	{"pp", INT, FIELD(pp), 1, 64},
	{"dp", INT, FIELD(dp), 1, 65536},
	{"cp", INT, FIELD(cp), 1, 64},
	{"ep", INT, FIELD(ep), 1, EXPERTS_MAX},
	{"cp-form", FORM, FIELD(by_heads), 0, 0},
	{"experts", INT, FIELD(experts), 2, EXPERTS_MAX},
	{"expert-capacity", REAL, FIELD(expert_capacity), 0.1, 64},
	{"expert-balance", REAL, FIELD(expert_balance), 0, 1e6},
	{"expert-group", INT, FIELD(expert_group), 1, GPT_MAX_LENGTH},
	{"recompute", FLAG, FIELD(recompute), 0, 0},
	{"schedule", SCHEDULE, FIELD(schedule), 0, 0},
	{"chunks", INT, FIELD(chunks), 1, 64},
	{"whole-tensors", FLAG, FIELD(flags.config.whole_tensors), 0, 0},
	{"shadow", FLAG, FIELD(flags.config.shadow), 0, 0},
	{"memory-limit", SIZE, FIELD(flags.config.memory_limit), 1, 9e15},
	{"offload", TEXT, FIELD(flags.config.offload_dir), 0, 0},
	{"save", TEXT, FIELD(save), 0, 0},
	{"save-every", INT, FIELD(save_every), 1, 1e9},
	{"export", TEXT, FIELD(export_to), 0, 0},
	{"log", TEXT, FIELD(log), 0, 0},
	{"report-every", INT, FIELD(report_every), 1, 1e9},
	{"sample", INT, FIELD(sample), 0, 1e9},
	{"grow-wait", INT, FIELD(grow_wait_s), 1, 86400},
	{"dump-loss", TEXT, FIELD(dump_loss), 0, 0},
	{"matmul", TEXT, FIELD(matmul), 0, 0},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

static int options_number(const char *text, const struct setting *setting, double *value)
{
	char *end;

	errno = 0;
	*value = strtod(text, &end);
	return errno == 0 && end != text && *end == '\0' && *value >= setting->least &&
	       *value <= setting->most &&
	       (setting->kind == REAL || setting->kind == SINGLE || *value == floor(*value));
}

/* The index of name in names, which NULL ends; -1. */
static int index_of(const char *name, const char *const *names)
{
	for (int i = 0; names[i]; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

static int set_option(struct options *o, const struct setting *setting, const char *text)
{
	static const char *const dtypes[] = {"f32", "bf16", "f16", NULL};
	static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zero_bubble",
						NULL};
	static const char *const forms[] = {"ring", "heads", NULL};
	void *field = (char *)o + setting->field;
	double value = 0;
	int which = 0;

	switch (setting->kind) {
	case TEXT:
		*(const char **)field = text;
		return 1;
	case FLAG:
		*(int *)field = 1;
		return 1;
	case SCHEDULE:
		which = index_of(text, schedules);
		*(tutti_schedule *)field = (tutti_schedule)which;
		return which >= 0;
	case FORM:
		which = index_of(text, forms);
		*(int *)field = which;
		return which >= 0;
	case DTYPE:
		which = index_of(text, dtypes);
		*(tutti_dtype *)field = which == 2   ? TUTTI_F16
					: which == 1 ? TUTTI_BF16
						     : TUTTI_F32;
		return which >= 0;
	default:
		break;
	}
	if (!options_number(text, setting, &value))
		return 0;
	if (setting->kind == INT)
		*(int *)field = (int)value;
	else if (setting->kind == SIZE)
		*(size_t *)field = (size_t)value;
	else if (setting->kind == SEED)
		*(uint64_t *)field = (uint64_t)value;
	else if (setting->kind == SINGLE)
		*(float *)field = (float)value;
	else
		*(double *)field = value;
	return 1;
}

static void print_usage(FILE *to)
{
	fprintf(to, "usage: %s%s%s%s", place_program, usage, tutti_train_config_help(),
		place_usage);
}

static int options_complain(const struct setting *setting, const char *text)
{
	fprintf(stderr, "gpt: --%s %s is not possible", setting->name, text);
	if (setting->most > 0)
		fprintf(stderr, ": it is a number from %g to %g", setting->least, setting->most);
	fprintf(stderr, "; %s --help has all options\n", place_program);
	return 3;
}

/* Whether --precision sets the field, too. */
static int sets_types(const struct setting *setting)
{
	return setting->kind == DTYPE || setting->field == FIELD(flags.config.loss_scale);
}

static int complain_of_types(const struct setting *setting, const char *precision)
{
	fprintf(stderr, "gpt: --%s is not possible with --precision %s, which sets it\n",
		setting->name, precision);
	return 3;
}

static const char *const *own_names(void)
{
	static const char *names[SETTINGS + 2];

	for (int i = 0; i < SETTINGS; i++)
		names[i] = settings[i].name;
	names[SETTINGS] = "help";
	return names;
}

/* A word of argv that is no flag, or one without its value. Returns the exit status plus 1. */
static int complain_of(char *word, int option)
{
	char *const words[] = {word, word};

	if (option == ':')
		fprintf(stderr, "gpt: %s needs a value\n", word);
	else if (tutti_train_config_rest(2, words, own_names()) != TUTTI_OK)
		fprintf(stderr, "gpt: %s\n", tutti_comm_error(NULL));
	fprintf(stderr, "%s --help has all options\n", place_program);
	return 3;
}

/* The options that no other trainer has. Returns as options_read. */
static int options_read_own(struct options *o, int argc, char **argv)
{
	struct option longs[SETTINGS + 2] = {[SETTINGS] = {"help", no_argument, NULL, 'h'}};
	int option, which = 0;

	for (int i = 0; i < SETTINGS; i++)
		longs[i] = (struct option){
			settings[i].name,
			settings[i].kind == FLAG ? no_argument : required_argument, NULL, 1};
	opterr = 0;
	while ((option = getopt_long(argc, argv, ":h", longs, &which)) != -1) {
		if (option == 'h') {
			print_usage(stdout);
			return 1;
		}
		if (option == '?' || option == ':')
			return complain_of(argv[optind - 1], option);
		if (o->flags.precision[0] && sets_types(&settings[which]))
			return complain_of_types(&settings[which], o->flags.precision);
		if (!set_option(o, &settings[which], optarg))
			return options_complain(&settings[which], optarg);
	}
	o->paths = optind < argc ? argv + optind : (char *const *)default_paths;
	o->path_count = optind < argc ? argc - optind : 1;
	return 0;
}

int options_read(struct options *o, int argc, char **argv)
{
	*o = (struct options){.steps = 200,
			      .batch = 8,
			      .length = 64,
			      .layers = 2,
			      .heads = 4,
			      .channels = 64,
			      .lr = 2e-3,
			      .seed = 1,
			      .save_every = 50,
			      .report_every = 20,
			      .sample = 240,
			      .grow_wait_s = 30,
			      .schedule = TUTTI_1F1B,
			      .chunks = 1,
			      .expert_capacity = 1.25,
			      .expert_balance = 0.01,
			      .expert_group = 8,
			      .flags.config = {.max_grad_norm = 1,
					       .check_replicas_every = 50,
					       .local_sgd_steps = 10}};
	if (tutti_train_config_read(&o->flags, &argc, argv) != TUTTI_OK) {
		fprintf(stderr, "gpt: %s\n", tutti_comm_error(NULL));
		return 3;
	}
	int stop = options_read_own(o, argc, argv);
	if (stop)
		return stop;
	if (!options_check(o))
		return 3;
	if (!o->micro_batches)
		o->micro_batches = o->flags.accumulate ? o->flags.accumulate : 1;
	if (o->ranks)
		o->flags.devices = o->ranks;
	o->flags.config.grad_dtype = TUTTI_F32; /* in which the layers add, also with bf16 */
	o->flags.config.seed = o->seed;
	o->flags.config.offload_optimizer = o->flags.config.offload_dir != NULL;
	return 0;
}
