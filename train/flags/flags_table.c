/* The flags, and what --help says of them. */
#include "train/flags/flags.h"

#include <string.h>

/* name, letter, kind, field, the most of a count, what is wanted, and what --help says */
#define FLAG_LIST(X)                                                                               \
	X("devices", 0, FLAG_AUTO, devices, 4096, "a number from 1 to 4096, or auto",              \
	  "  --devices N           ranks on this node; auto: one for each GPU or CPU\n")           \
	X("nodes", 0, FLAG_COUNT, nodes, 65536, "a number from 1 to 65536",                        \
	  "  --nodes N             nodes, each with as many ranks\n")                              \
	X("strategy", 0, FLAG_STRATEGY, config.strategy, 0,                                        \
	  "ddp, zero1, zero2, fsdp, hsdp or local_sgd",                                            \
	  "  --strategy S          ddp, zero1, zero2, fsdp, hsdp or local_sgd\n")                  \
	X("precision", 0, FLAG_PRECISION, precision, 0, "32, bf16, bf16-mixed or 16-mixed",        \
	  "  --precision P         32, bf16, bf16-mixed or 16-mixed\n")                            \
	X("accumulate", 0, FLAG_COUNT, accumulate, 65536, "a number from 1 to 65536",              \
	  "  --accumulate N        micro-batches of a step\n")                                     \
	X("clip", 0, FLAG_REAL, config.max_grad_norm, 0,                                           \
	  "a norm: a finite number, or 0 for no clipping",                                         \
	  "  --clip X              the largest norm of a step's gradients; 0: any\n")              \
	X("resume", 0, FLAG_PATH, resume, 0, "a folder of checkpoints, or auto",                   \
	  "  --resume DIR          goes on from the newest checkpoint there; auto: where it "      \
	  "saves\n")                                                                               \
	X("test", 0, FLAG_PATH, test, 0, "a checkpoint",                                           \
	  "  --test CHECKPOINT     evaluates it, and trains nothing\n")                            \
	X("config", 0, FLAG_PATH, config_file, 0, "a JSON file",                                   \
	  "  --config FILE         these flags in JSON; those of the command line win\n")          \
	X("gpus", 'g', FLAG_GPUS, gpus, 0, "GPUs, each of them once, such as 0 1",                 \
	  "  -g, --gpus 0 1        these GPUs, and a rank for each\n")                             \
	X("port", 'p', FLAG_COUNT, port, 65535, "a port from 1 to 65535",                          \
	  "  -p, --port N          where the ranks meet\n")

const struct flag flags[FLAGS] = {
#define ROW(name, letter, kind, member, most, wanted, help)                                        \
	{name, letter, kind, offsetof(tutti_train_options, member), most, wanted},
	FLAG_LIST(ROW)
#undef ROW
};

const char *tutti_train_config_help(void)
{
#define ROW(name, letter, kind, member, most, wanted, help) help
	return FLAG_LIST(ROW);
#undef ROW
}

const struct flag *flag_named(const char *name, size_t bytes)
{
	for (int i = 0; i < FLAGS; i++)
		if (strlen(flags[i].name) == bytes && memcmp(flags[i].name, name, bytes) == 0)
			return &flags[i];
	return NULL;
}

bool flag_is_file(const struct flag *flag)
{
	return flag->field == offsetof(tutti_train_options, config_file);
}
