/* no_tsan: other tests of the trainer run the same code with fewer models */
/* What would break: bad registrations that are accepted, and missing functions that pretend to
 * work. */
#include "tests/train/ranks.h"

#include <math.h>
#include <limits.h>
#include <string.h>

#include "tests/unit.h"

static const int64_t shape[] = {2, 3};

static void registration(tutti_comm *comm, void *arg)
{
	tutti_model *model;
	const int64_t bad[] = {2, -1}, huge[] = {INT64_MAX, 4}, none[] = {0, INT64_MAX};
	float data[6], grad[6];
	char name[200];

	CHECK_ERROR(tutti_model_create(NULL), TUTTI_ERR_INVALID, "NULL");
	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_param(model, 0, "w", 2, shape, 0) == -1);
	CHECK_MESSAGE("'w' belongs to unit 0, but the model has 0 units");
	CHECK(tutti_model_unit(model, "first") == 0);
	CHECK(tutti_model_unit(model, "first") == -1);
	CHECK_MESSAGE("two units 'first'");
	CHECK(tutti_model_unit(model, "second") == 1);
	CHECK(tutti_model_param(model, 0, "w", 2, shape, 0) == 0);
	CHECK(tutti_model_param(model, 0, "w", 2, shape, 0) == -1);
	CHECK_MESSAGE("two parameters 'w'");
	CHECK(tutti_model_param(model, 0, "b", 2, bad, 0) == -1);
	CHECK_MESSAGE("Dimension 1 of parameter 'b' is -1, but must be at least 0.");
	CHECK(tutti_model_param(model, 0, "b", 2, none, 0) == -1);
	CHECK_MESSAGE("larger than 281474976710656 elements (a dimension of 0 counts as 1)");
	CHECK(tutti_model_param(model, 0, "b", 2, huge, 0) == -1);
	CHECK_MESSAGE("Parameter 'b' makes the model larger than 281474976710656 elements");
	CHECK(tutti_model_param(model, 0, "b", 9, shape, 0) == -1);
	CHECK(tutti_model_param(model, 0, "b", 1, NULL, 0) == -1);
	CHECK(tutti_model_param(model, 0, "b", 2, shape, 64) == -1);
	CHECK_MESSAGE("unknown flags 0x40");
	CHECK(tutti_model_param(model, 0, NULL, 2, shape, 0) == -1);
	CHECK(tutti_model_param(model, 0, "two\nlines", 2, shape, 0) == -1);
	memset(name, 'x', sizeof name);
	name[sizeof name - 1] = '\0';
	CHECK(tutti_model_param(model, 0, name, 2, shape, 0) == -1);
	CHECK_MESSAGE("199 bytes");
	CHECK(tutti_model_param(NULL, 0, "b", 2, shape, 0) == -1);

	CHECK(tutti_model_param_extern(model, 0, "e", 2, shape, TUTTI_F32, NULL, grad, 0) == -1);
	CHECK(tutti_model_param_extern(model, 0, "e", 2, shape, TUTTI_F32, data, NULL, 0) == -1);
	CHECK_MESSAGE("not frozen");
	CHECK(tutti_model_param_extern(model, 0, "e", 2, shape, TUTTI_F32, (char *)data + 2, grad,
				       0) == -1);
	CHECK_MESSAGE("'e' are not aligned to 4 bytes");
	CHECK(tutti_model_param_extern(model, 0, "e", 2, shape, TUTTI_F64, data, grad, 0) == -1);
	CHECK_MESSAGE("'e' has type 1");
	CHECK(tutti_model_param_extern(model, 0, "e", 2, shape, TUTTI_F32, data, NULL,
				       TUTTI_PARAM_FROZEN) == 1);

	CHECK_ERROR(tutti_model_unit_uses(model, 2, 0), TUTTI_ERR_INVALID, "no unit 2 among 2");
	CHECK_ERROR(tutti_model_unit_uses(model, 1, 2), TUTTI_ERR_INVALID, "no parameter 2");
	CHECK(tutti_model_unit_uses(model, 1, 0) == TUTTI_OK);
	CHECK_ERROR(tutti_model_param_group(model, 0, -1), TUTTI_ERR_INVALID, "negative");
	CHECK(tutti_model_buffer(model, "mean", (tutti_dtype)99, 6, data) == -1);
	CHECK(tutti_model_buffer(model, "mean", TUTTI_F32, 6, NULL) == -1);
	CHECK(tutti_model_buffer(model, "mean", TUTTI_F32, 6, data) == 0);
	CHECK(tutti_model_buffer(model, "mean", TUTTI_F32, 6, data) == -1);
	CHECK_MESSAGE("two buffers 'mean'");
	CHECK(tutti_model_buffer(model, "none", TUTTI_F32, 0, NULL) == 1);
	tutti_model_destroy(model);
	tutti_model_destroy(NULL);
}

/* A sum of bytes must not overflow. */
static void large(tutti_comm *comm, void *arg)
{
	static const int64_t most = (int64_t)1 << 48, one = 1;
	const tutti_train_config config = {.memory_limit = 1000},
				 all = {.deterministic = 2, .strategy = TUTTI_FSDP};
	tutti_train_stats stats;
	tutti_model *model;
	tutti_trainer *trainer;

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "unit") == 0);
	CHECK(tutti_model_param(model, 0, "w", 1, &most, 0) == 0);
	CHECK(tutti_model_param(model, 0, "b", 1, &one, TUTTI_PARAM_FROZEN) == -1);
	CHECK_MESSAGE("Parameter 'b' makes the model larger");
	CHECK(tutti_memory_estimate(model, 1, NULL, &stats) == TUTTI_OK);
	CHECK(stats.param_bytes == (size_t)1 << 50 && stats.optimizer_bytes == (size_t)1 << 51);
	CHECK(tutti_memory_estimate(model, 65536, &all, &stats) == TUTTI_OK);
	CHECK(stats.gathered_peak_bytes >= (size_t)1 << 50);
	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &config), TUTTI_ERR_MEMORY,
		    "needs 4,503,599,627,370,496 B");
	tutti_model_destroy(model);
}

/* A model that a checkpoint or an export could not hold is refused before training. */
static void names(tutti_comm *comm, void *arg)
{
	static const char *const bad[] = {"caf\xe9", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
					  "half \xe2\x82"};
	tutti_model *model;
	float data[6];

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "Gr\xc3\xb6\xc3\x9f"
				      "e") == 0);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		CHECK(tutti_model_unit(model, bad[i]) == -1);
		CHECK_MESSAGE("of a unit is not UTF-8");
		CHECK(tutti_model_param(model, 0, bad[i], 2, shape, 0) == -1);
		CHECK_MESSAGE("of a parameter is not UTF-8");
		CHECK(tutti_model_param_extern(model, 0, bad[i], 2, shape, TUTTI_F32, data, data,
					       0) == -1);
		CHECK(tutti_model_buffer(model, bad[i], TUTTI_F32, 6, data) == -1);
		CHECK_MESSAGE("of a buffer is not UTF-8");
		CHECK(tutti_model_state(model, bad[i], data, sizeof data, 0) == -1);
		CHECK_MESSAGE("of a state is not UTF-8");
	}
	CHECK(tutti_model_param(model, 0, "__metadata__", 2, shape, 0) == -1);
	CHECK_MESSAGE("A parameter cannot be named '__metadata__'");
	CHECK(tutti_model_buffer(model, "__metadata__", TUTTI_F32, 6, data) == -1);
	CHECK_MESSAGE("A buffer cannot be named '__metadata__'");
	CHECK(tutti_model_param(model, 0, "w", 2, shape, 0) == 0);
	CHECK(tutti_model_buffer(model, "w", TUTTI_F32, 6, data) == -1);
	CHECK_MESSAGE("the name of parameter 'w'");
	CHECK(tutti_model_buffer(model, "mean", TUTTI_F32, 6, data) == 0);
	CHECK(tutti_model_param(model, 0, "mean", 2, shape, 0) == -1);
	CHECK_MESSAGE("the name of buffer 'mean'");
	/* Units and states are not tensors of a file, or have a kind of their own there. */
	CHECK(tutti_model_unit(model, "w") == 1);
	CHECK(tutti_model_state(model, "w", data, sizeof data, 0) == 0);
	tutti_model_destroy(model);
}

static void unbuilt(tutti_comm *comm, void *arg)
{
	static const struct {
		tutti_train_config config;
		tutti_status status;
		const char *name;
	} configs[] = {
		{{.on_device = 1}, TUTTI_ERR_UNSUPPORTED, "on_device needs CUDA"},
		{{.on_device = 2}, TUTTI_ERR_INVALID, "on_device is 2"},
		{{.stream = (void *)1}, TUTTI_ERR_INVALID, "stream needs on_device"},
	};
	tutti_model *model;
	tutti_trainer *trainer;
	int64_t step;

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "unit") == 0);
	CHECK(tutti_model_param(model, 0, "w", 2, shape, 0) == 0);
	for (size_t i = 0; i < sizeof configs / sizeof *configs; i++)
		CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &configs[i].config),
			    configs[i].status, configs[i].name);
	CHECK(tutti_model_state(model, "s", &step, sizeof step, 0) == 0);
	CHECK(tutti_model_state(model, "none", NULL, 0, 0) == 1);
	CHECK(tutti_model_state(model, "s", &step, sizeof step, 1) == -1);
	CHECK_MESSAGE("There are two states 's'.");
	CHECK(tutti_model_state(model, "t", NULL, 1, 0) == -1);
	CHECK_MESSAGE("tutti_model_state needs a model and data");
	CHECK(tutti_model_state(model, "", &step, sizeof step, 0) == -1);
	CHECK_MESSAGE("A state needs a name.");
	CHECK(tutti_trainer_create(&trainer, model, comm, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_save(NULL, "/tmp", 1), TUTTI_ERR_INVALID, "tutti_save needs a trainer");
	CHECK_ERROR(tutti_save_wait(NULL), TUTTI_ERR_INVALID, "tutti_save_wait needs a trainer");
	CHECK_ERROR(tutti_load(NULL, "/tmp", &step), TUTTI_ERR_INVALID,
		    "tutti_load needs a trainer");
	tutti_trainer_destroy(trainer);
	tutti_trainer_destroy(NULL);
	tutti_model_destroy(model);
}

static void bad_configs(tutti_comm *comm, void *arg)
{
	const tutti_train_config negative = {.max_grad_norm = -1}, reserved = {.reserved = {1}};
	const tutti_train_config strange = {.strategy = (tutti_strategy)77},
				 tight = {.memory_limit = 95};
	static const struct {
		tutti_train_config config;
		const char *why;
	} invalid[] = {
		{{.param_dtype = TUTTI_F64}, "param_dtype"},
		{{.grad_dtype = TUTTI_F16}, "grad_dtype"},
		{{.param_dtype = TUTTI_F16, .reduce_dtype = TUTTI_BF16}, "reduce_dtype"},
		{{.param_dtype = TUTTI_F16, .stochastic_rounding = 1}, "stochastic_rounding"},
		{{.param_dtype = TUTTI_BF16, .grad_dtype = TUTTI_BF16, .deterministic = 2},
		 "deterministic = 2"},
		{{.deterministic = 3}, "deterministic is 3"},
		{{.loss_scale = INFINITY}, "loss_scale"},
		{{.prefetch_units = -1}, "prefetch_units"},
		{{.strategy = TUTTI_LOCAL_SGD}, "local_sgd_steps"},
		{{.strategy = TUTTI_HSDP, .shard_size = 3}, "shard groups of 3"},
	};
	const tutti_train_config enough = {.memory_limit = 96},
				 every = {.check_replicas_every = -1};
	tutti_train_stats stats;
	tutti_model *model;
	tutti_trainer *trainer;

	CHECK(tutti_model_create(&model) == TUTTI_OK);
	CHECK(tutti_model_unit(model, "unit") == 0);
	CHECK(tutti_model_param(model, 0, "w", 2, shape, 0) == 0);
	CHECK_ERROR(tutti_trainer_create(NULL, model, comm, NULL), TUTTI_ERR_INVALID, "NULL");
	CHECK_ERROR(tutti_trainer_create(&trainer, NULL, comm, NULL), TUTTI_ERR_INVALID, "NULL");
	CHECK_ERROR(tutti_trainer_create(&trainer, model, NULL, NULL), TUTTI_ERR_INVALID, "NULL");
	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &negative), TUTTI_ERR_INVALID,
		    "max_grad_norm");
	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &every), TUTTI_ERR_INVALID,
		    "check_replicas_every");
	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &reserved), TUTTI_ERR_INVALID,
		    "reserved");
	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &strange), TUTTI_ERR_INVALID,
		    "no strategy 77");
	for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
		CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &invalid[i].config),
			    TUTTI_ERR_INVALID, invalid[i].why);
	CHECK_ERROR(tutti_trainer_create(&trainer, model, comm, &tight), TUTTI_ERR_MEMORY,
		    "needs 96 B: 24 parameters + 24 gradients + 48 optimizer");
	CHECK(tutti_memory_estimate(model, 4, NULL, &stats) == TUTTI_OK);
	CHECK(stats.param_bytes == 24 && stats.grad_bytes == 24 && stats.optimizer_bytes == 48);
	CHECK_ERROR(tutti_memory_estimate(model, 0, NULL, &stats), TUTTI_ERR_INVALID, "world");
	CHECK_ERROR(tutti_memory_estimate(model, INT_MAX, NULL, &stats), TUTTI_ERR_INVALID,
		    "world_size is 2147483647");
	CHECK(tutti_trainer_create(&trainer, model, comm, &enough) == TUTTI_OK);
	tutti_trainer_destroy(trainer);
	tutti_model_destroy(model);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RANKS_TEST(registration, 1, 1), RANKS_TEST(names, 1, 1),
		RANKS_TEST(large, 1, 1),        RANKS_TEST(unbuilt, 2, 2),
		RANKS_TEST(bad_configs, 2, 2),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
