/* What would break: training that continues from a checkpoint, at another number of ranks and with
 * another strategy. The toy's gradients are sums of small integers, so the bits are those of
 * uninterrupted training. */
#include "tests/train/ranks.h"
#include "tests/train/saved.h"
#include "tests/train/toy.h"

#include "train/checkpoint/safetensors.h"

#include "tests/threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit.h"

enum { SAMPLES = 8, HALF = 3, WHOLE = 6, BUFFER = 5 };

static const tutti_optimizer momentum = {.kind = TUTTI_SGD, .lr = 0.01f, .momentum = 0.9f};

#define COMMON .seed = 7, .max_grad_norm = 3, .bucket_bytes = 200, .deterministic = 1

struct variant {
	tutti_train_config config;
	int is_extern;
};

static const struct variant ddp = {{COMMON, .strategy = TUTTI_DDP}, 0};
static const struct variant ddp_extern = {{COMMON, .strategy = TUTTI_DDP}, 1};
static const struct variant zero1 = {{COMMON, .strategy = TUTTI_ZERO1}, 0};
static const struct variant zero1_extern = {{COMMON, .strategy = TUTTI_ZERO1}, 1};
static const struct variant zero2 = {{COMMON, .strategy = TUTTI_ZERO2, .whole_tensors = 1}, 0};
static const struct variant fsdp = {{COMMON, .strategy = TUTTI_FSDP}, 0};
static const struct variant hsdp = {{COMMON, .strategy = TUTTI_HSDP, .shard_size = 2}, 0};
static const struct variant zero1_on_disk = {
	{COMMON, .strategy = TUTTI_ZERO1, .offload_optimizer = 1, .offload_dir = "/tmp"}, 0};

/* What a job does, and its results. */
struct job {
	const struct variant *variant;
	const tutti_optimizer *optimizer;
	int first, last;   /* steps; if first > 0 it loads that step */
	int save_after;    /* saves after that many steps without waiting; 0: never */
	tutti_dtype dtype; /* of parameters; BF16 is rounded stochastically */
	char *file;        /* exported at the end, or imported if first and last are 0 */
	float values[TOY_PARAMS][TOY_MAX];
	uint16_t low[2][TOY_PARAMS][TOY_MAX]; /* DDP's parameters, half way and at the end */
};

/* The caller's own states. */
struct own {
	int64_t cursor;
	double buffer[BUFFER];
	char nothing[1];
};

static void set_own(struct own *own, int step)
{
	own->cursor = 1000 * step;
	for (int i = 0; i < BUFFER; i++)
		own->buffer[i] = step + i / 8.0;
}

static void start(struct toy *toy, struct own *own, tutti_comm *comm, const struct job *job)
{
	tutti_train_config config = job->variant->config;

	config.param_dtype = job->dtype;
	config.stochastic_rounding = job->dtype == TUTTI_BF16;
	set_own(own, 0);
	toy_register(toy, comm, job->variant->is_extern);
	CHECK(tutti_model_state(toy->model, "cursor", &own->cursor, sizeof own->cursor, 0) == 0);
	CHECK(tutti_model_state(toy->model, "of no bytes", own->nothing, 0, 0) == 1);
	CHECK(tutti_model_buffer(toy->model, "buffer", TUTTI_F64, BUFFER, own->buffer) == 0);
	toy_train(toy, comm, &config);
}

static void go_on(struct toy *toy, const struct own *own, const struct job *job)
{
	struct own expected;
	int64_t step = -2;

	CHECK(tutti_load(toy->trainer, saved_dir, &step) == TUTTI_OK);
	CHECK(step == job->first);
	set_own(&expected, job->first);
	CHECK(own->cursor == expected.cursor);
	CHECK(memcmp(own->buffer, expected.buffer, sizeof own->buffer) == 0);
}

/* Stochastically rounded values can be restored only exactly. */
static void keep_low(struct toy *toy, struct job *job, int which)
{
	if (job->dtype != TUTTI_BF16 || job->variant != &ddp || toy->rank > 0)
		return;
	for (int p = 0; p < TOY_PARAMS; p++)
		memcpy(job->low[which][p], tutti_param_data(toy->trainer, p),
		       toy_count(p) * sizeof(uint16_t));
}

static void run_job(tutti_comm *comm, void *arg)
{
	struct job *job = arg;
	struct toy toy;
	struct own own;

	start(&toy, &own, comm, job);
	if (job->first > 0)
		go_on(&toy, &own, job);
	else if (job->last == 0 && job->file)
		CHECK(tutti_import_safetensors(toy.trainer, job->file) == TUTTI_OK);
	for (int step = job->first; step < job->last; step++) {
		if (step == HALF)
			keep_low(&toy, job, 0);
		toy_micro_batch(&toy, TUTTI_PASS_LAST, step, SAMPLES);
		CHECK(tutti_step(toy.trainer, job->optimizer, 1, NULL) == TUTTI_OK);
		set_own(&own, step + 1);
		if (step + 1 != job->save_after)
			continue;
		toy_micro_batch(&toy, TUTTI_PASS_EVAL, step, SAMPLES);
		CHECK(tutti_save(toy.trainer, saved_dir, step + 1) == TUTTI_OK);
	}
	keep_low(&toy, job, 1);
	CHECK(tutti_save_wait(toy.trainer) == TUTTI_OK);
	if (job->last > 0 && job->file)
		CHECK(tutti_export_safetensors(toy.trainer, job->file) == TUTTI_OK);
	toy_micro_batch(&toy, TUTTI_PASS_EVAL, 0, SAMPLES);
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	toy_keep(&toy, job->values);
	toy_destroy(&toy);
}

static void run(struct job *job, int ranks)
{
	assert_int_equal(ranks_as_threads(ranks, run_job, job), 0);
}

static void assert_same(const struct job *a, const struct job *b)
{
	for (int p = 0; p < TOY_PARAMS; p++)
		assert_memory_equal(a->values[p], b->values[p], toy_count(p) * sizeof(float));
}

/* The first half of a training. It saves while it continues with a step that is not in the
 * checkpoint. */
static void save_half(const struct variant *variant, const struct job *like, int ranks)
{
	struct job job = *like;

	job.variant = variant;
	job.first = 0;
	job.last = HALF + 1;
	job.save_after = HALF;
	run(&job, ranks);
}

static void load_half(const struct variant *variant, const struct job *whole, int ranks)
{
	struct job job = *whole;

	job.variant = variant;
	job.first = HALF;
	memset(job.values, 0, sizeof job.values);
	run(&job, ranks);
	assert_same(&job, whole);
}

static void load_everywhere(const struct job *whole)
{
	for (int ranks = 1; ranks <= 8; ranks += ranks < 3 ? 1 : 5)
		load_half(&ddp, whole, ranks);
	load_half(&zero1_extern, whole, 2);
	load_half(&zero2, whole, 3);
	load_half(&fsdp, whole, 3);
	load_half(&hsdp, whole, 4);
	load_half(&zero1_on_disk, whole, 2);
}

static void any_to_any(void **state)
{
	const struct {
		const struct variant *variant;
		int ranks;
	} savers[] = {{&fsdp, 4},  {&ddp_extern, 2}, {&zero1, 3},
		      {&zero2, 2}, {&hsdp, 4},       {&zero1_on_disk, 2}};
	struct job whole = {.variant = &ddp, .optimizer = &toy_adamw, .last = WHOLE};
	int fds = saved_fds(), threads = threads_alone();

	run(&whole, 1);
	for (size_t s = 0; s < sizeof savers / sizeof *savers; s++) {
		save_half(savers[s].variant, &whole, savers[s].ranks);
		assert_int_equal(saved_count(saved_dir, "step_"), 1);
		assert_int_equal(saved_count(saved_dir, ".step_"), 0);
		load_everywhere(&whole);
	}
	assert_int_equal(saved_fds(), fds);
	assert_int_equal(threads_alive(), threads);
}

static void one_moment(void **state)
{
	struct job whole = {.variant = &ddp, .optimizer = &momentum, .last = WHOLE};

	run(&whole, 1);
	save_half(&fsdp, &whole, 3);
	load_everywhere(&whole);
}

/* The master copy, and its stochastically rounded value, which forward uses. */
static void sixteen_bits(void **state)
{
	struct job whole = {
		.variant = &ddp, .optimizer = &toy_adamw, .last = WHOLE, .dtype = TUTTI_BF16};
	struct job half = whole;

	run(&whole, 1);
	save_half(&fsdp, &whole, 4);
	struct job other = whole;
	other.first = HALF;
	memset(other.low, 0, sizeof other.low);
	run(&other, 2);
	assert_same(&other, &whole);
	assert_memory_equal(other.low, whole.low, sizeof whole.low);
	load_half(&fsdp, &whole, 3);
	/* Into f32: the values are the master copy's. */
	half.last = HALF;
	run(&half, 1);
	struct job wide = {.variant = &ddp, .optimizer = &toy_adamw, .first = HALF, .last = HALF};
	run(&wide, 2);
	assert_same(&wide, &half);
}

static void one_file(void **state)
{
	char path[200];
	struct job job = {.variant = &fsdp, .optimizer = &toy_adamw, .last = HALF, .file = path};

	snprintf(path, sizeof path, "%s/model.safetensors", saved_dir);
	for (int ranks = 1; ranks <= 4; ranks += 3) {
		run(&job, ranks);
		assert_int_equal(saved_count(saved_dir, "model.safetensors"), 1);
		struct job imported = {.variant = &zero1, .optimizer = &toy_adamw, .file = path};
		run(&imported, 3);
		assert_same(&imported, &job);
		imported.variant = &ddp_extern;
		run(&imported, 2);
		assert_same(&imported, &job);
	}
	/* In 16 bits, read as such and as f32. */
	job.dtype = TUTTI_BF16;
	run(&job, 2);
	struct job narrow = {
		.variant = &fsdp, .optimizer = &toy_adamw, .file = path, .dtype = TUTTI_BF16};
	struct job wide = {.variant = &ddp, .optimizer = &toy_adamw, .file = path};
	run(&narrow, 3);
	run(&wide, 1);
	assert_same(&narrow, &wide);
	for (int p = 0; p < TOY_PARAMS; p++)
		assert_true(narrow.values[p][0] - job.values[p][0] < 0.1f &&
			    job.values[p][0] - narrow.values[p][0] < 0.1f);
}

/* If the name exists: a file is replaced; anything else stays, and so do the user's files beside
 * it. */
static void export_names(tutti_comm *comm, void *arg)
{
	struct job job = {.variant = &fsdp, .optimizer = &toy_adamw};
	struct toy toy;
	struct own own;
	struct stat about;
	char path[200], beside[200], kept[200], target[6] = "";

	start(&toy, &own, comm, &job);
	snprintf(kept, sizeof kept, "%s/file", saved_dir);
	for (int i = 0; i < 4; i++) {
		static const char *const names[] = {"folder", "pipe", "link", "dangling"};
		snprintf(path, sizeof path, "%s/%s", saved_dir, names[i]);
		CHECK_ERROR(tutti_export_safetensors(toy.trainer, path), TUTTI_ERR_INVALID,
			    "' exists and is not a regular file");
		CHECK(lstat(path, &about) == 0);
		CHECK((about.st_mode & S_IFMT) == (i == 0 ? S_IFDIR : i == 1 ? S_IFIFO : S_IFLNK));
	}
	CHECK(readlink(path, target, sizeof target) > 0 && stat(kept, &about) == 0);
	CHECK(about.st_size == 5);
	snprintf(path, sizeof path, "%s/new", saved_dir);
	snprintf(beside, sizeof beside, "%s/new.tmp", saved_dir);
	for (int i = 0; i < 2; i++) { /* the second time it is there */
		CHECK(tutti_export_safetensors(toy.trainer, path) == TUTTI_OK);
		CHECK(stat(path, &about) == 0 && about.st_size > 1000);
		CHECK(stat(beside, &about) == 0 && about.st_size == 5);
	}
	CHECK(saved_count(saved_dir, "new") == 2);
	toy_destroy(&toy);
}

static void write_five(const char *name)
{
	char path[200];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", saved_dir, name);
	assert_non_null(file = fopen(path, "w"));
	assert_int_equal(fwrite("mine!", 1, 5, file), 5);
	assert_int_equal(fclose(file), 0);
}

static void taken_names(void **state)
{
	char path[200];

	write_five("file");
	write_five("new.tmp");
	snprintf(path, sizeof path, "%s/folder", saved_dir);
	assert_int_equal(mkdir(path, 0777), 0);
	snprintf(path, sizeof path, "%s/pipe", saved_dir);
	assert_int_equal(mkfifo(path, 0666), 0);
	snprintf(path, sizeof path, "%s/link", saved_dir);
	assert_int_equal(symlink("file", path), 0);
	snprintf(path, sizeof path, "%s/dangling", saved_dir);
	assert_int_equal(symlink("nowhere", path), 0);
	assert_int_equal(ranks_as_threads(3, export_names, NULL), 0);
}

static void refusals(tutti_comm *comm, void *arg)
{
	struct job job = {.variant = &fsdp, .optimizer = &toy_adamw};
	struct toy toy;
	struct own own;
	char path[200], nowhere[200];
	int64_t step = 5;

	snprintf(path, sizeof path, "%s/file", saved_dir);
	snprintf(nowhere, sizeof nowhere, "%s/nowhere/at/all", saved_dir);
	start(&toy, &own, comm, &job);
	/* Nothing is there. */
	CHECK(tutti_load(toy.trainer, saved_dir, &step) == TUTTI_OK && step == -1);
	CHECK_ERROR(tutti_import_safetensors(toy.trainer, path), TUTTI_ERR_SYSTEM, "errno 2");
	CHECK_ERROR(tutti_save(toy.trainer, nowhere, 1), TUTTI_ERR_SYSTEM,
		    "/nowhere/at/all' failed: No such file or directory (errno 2).");
	CHECK_ERROR(tutti_export_safetensors(toy.trainer, nowhere), TUTTI_ERR_SYSTEM,
		    "/nowhere/at/all.tmp-");
	CHECK(tutti_save_wait(toy.trainer) == TUTTI_OK);
	/* One rank has another disk there, or another step. */
	const char *here = tutti_rank(comm) == 1 ? nowhere : saved_dir;
	CHECK_ERROR(tutti_save(toy.trainer, here, 1), TUTTI_ERR_SYSTEM,
		    "Rank 1 cannot find the folder of '");
	CHECK_ERROR(tutti_save(toy.trainer, saved_dir, tutti_rank(comm)), TUTTI_ERR_MISMATCH,
		    "tutti_save: rank 1 saves step 1, but rank 0 saves step 0.");
	CHECK_ERROR(tutti_save(toy.trainer, saved_dir, -1), TUTTI_ERR_INVALID, "not negative");
	CHECK_ERROR(tutti_save(toy.trainer, NULL, 1), TUTTI_ERR_INVALID, "needs a folder");
	/* In the middle of a step. */
	toy_micro_batch(&toy, TUTTI_PASS_ACCUMULATE, 0, SAMPLES);
	CHECK_ERROR(tutti_save(toy.trainer, saved_dir, 1), TUTTI_ERR_INVALID, "a step has begun");
	CHECK_ERROR(tutti_load(toy.trainer, saved_dir, &step), TUTTI_ERR_INVALID,
		    "a step has begun");
	CHECK_ERROR(tutti_export_safetensors(toy.trainer, path), TUTTI_ERR_INVALID, "a step has");
	CHECK_ERROR(tutti_import_safetensors(toy.trainer, path), TUTTI_ERR_INVALID, "a step has");
	CHECK(toy_step(&toy, 0, SAMPLES) == TUTTI_OK);
	/* Without tutti_save_wait the save is dropped. */
	CHECK(tutti_save(toy.trainer, saved_dir, 1) == TUTTI_OK);
	toy_destroy(&toy);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	CHECK(saved_count(saved_dir, "step_") == 0);
	CHECK(saved_count(saved_dir, ".step_") == 0);
}

static void refused(void **state)
{
	assert_int_equal(ranks_as_threads(3, refusals, NULL), 0);
}

/* A model that does not fit, and a damaged checkpoint. */
static void misfits(tutti_comm *comm, void *arg)
{
	const int64_t shape = 4;
	struct job job = {.variant = &ddp, .optimizer = &toy_adamw};
	struct toy toy;
	struct own own;
	char path[200], each[8] = "";
	int64_t step = 5;

	for (int what = 0; what < 3; what++) {
		set_own(&own, 0);
		toy_register(&toy, comm, 0);
		if (what == 0)
			CHECK(tutti_model_param(toy.model, 0, "more", 1, &shape, 0) == TOY_PARAMS);
		if (what == 1)
			CHECK(tutti_model_state(toy.model, "cursor", each, 7, 0) == 0);
		if (what == 2)
			CHECK(tutti_model_state(toy.model, "cursor", each, 8, 1) == 0);
		toy_train(&toy, comm, &job.variant->config);
		CHECK_ERROR(tutti_load(toy.trainer, saved_dir, &step), TUTTI_ERR_INVALID,
			    what == 0   ? "does not fit this model: parameter 'more' is not in it"
			    : what == 1 ? "state 'cursor' has another size or type there"
					: "the state 'cursor' is per rank, and the checkpoint '");
		CHECK(step == 5);
		toy_destroy(&toy);
	}
	start(&toy, &own, comm, &job);
	snprintf(path, sizeof path, "%s/step_%08d/part-00001-of-00002.safetensors", saved_dir,
		 HALF);
	if (tutti_rank(comm) == 0) {
		FILE *file = fopen(path, "r+");
		CHECK(file && fseek(file, -1, SEEK_END) == 0);
		int last = fgetc(file);
		CHECK(fseek(file, -1, SEEK_END) == 0 && fputc(last ^ 1, file) != EOF);
		CHECK(fclose(file) == 0);
	}
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_load(toy.trainer, saved_dir, &step), TUTTI_ERR_INVALID,
		    ", which rank 1 wrote to '");
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	if (tutti_rank(comm) == 0)
		CHECK(truncate(path, 1000) == 0);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	CHECK_ERROR(tutti_load(toy.trainer, saved_dir, &step), TUTTI_ERR_INVALID, "are damaged");
	toy_destroy(&toy);
}

static void misfit(void **state)
{
	struct job half = {.variant = &ddp, .optimizer = &toy_adamw, .last = HALF};

	half.save_after = HALF;
	run(&half, 2);
	assert_int_equal(ranks_as_threads(3, misfits, NULL), 0);
}

/* Each rank gets its own state back. A damaged newer checkpoint is passed over, with a message. */
static void own_states(tutti_comm *comm, void *arg)
{
	int rank = tutti_rank(comm), mine = 100 + rank;
	char path[200];
	struct toy toy;
	int64_t step = 5;

	toy_register(&toy, comm, 0);
	CHECK(tutti_model_state(toy.model, "mine", &mine, sizeof mine, 1) == 0);
	toy_train(&toy, comm, &fsdp.config);
	CHECK(tutti_save(toy.trainer, saved_dir, 1) == TUTTI_OK);
	mine += 100;
	CHECK(tutti_save(toy.trainer, saved_dir, 2) == TUTTI_OK); /* waits for the first one */
	CHECK(tutti_save_wait(toy.trainer) == TUTTI_OK);
	mine = 0;
	CHECK(tutti_load(toy.trainer, saved_dir, &step) == TUTTI_OK);
	CHECK(step == 2 && mine == 200 + rank);
	CHECK(tutti_barrier(comm, NULL) == TUTTI_OK);
	snprintf(path, sizeof path, "%s/step_00000002/COMMIT", saved_dir);
	if (rank == 0)
		CHECK(unlink(path) == 0);
	CHECK(tutti_load(toy.trainer, saved_dir, &step) == TUTTI_OK);
	CHECK(step == 1 && mine == 100 + rank);
	CHECK_MESSAGE("1 newer checkpoints are damaged and were passed over. Opening '");
	toy_destroy(&toy);
}

static void states(void **state)
{
	assert_int_equal(ranks_as_threads(3, own_states, NULL), 0);
}

static void other_states(tutti_comm *comm, void *arg)
{
	char mine[4] = "";
	struct toy toy;

	toy_register(&toy, comm, 0);
	CHECK(tutti_model_state(toy.model, "mine", mine, tutti_rank(comm) == 1 ? 3 : 4, 1) == 0);
	CHECK_ERROR(tutti_trainer_create(&toy.trainer, toy.model, comm, NULL), TUTTI_ERR_MISMATCH,
		    "state 'mine': 3 bytes of each rank");
	tutti_model_destroy(toy.model);
}

/* Between averages ranks differ. */
static void alone(tutti_comm *comm, void *arg)
{
	const tutti_train_config config = {COMMON, .strategy = TUTTI_LOCAL_SGD,
					   .local_sgd_steps = 2};
	struct toy toy;
	char path[200];
	int64_t step;

	snprintf(path, sizeof path, "%s/model.safetensors", saved_dir);
	toy_make(&toy, comm, &config);
	for (int i = 0; i < 2; i++) {
		CHECK(toy_step(&toy, i, SAMPLES) == TUTTI_OK);
		if (i > 0)
			continue;
		CHECK_ERROR(tutti_save(toy.trainer, saved_dir, 1), TUTTI_ERR_INVALID,
			    "tutti_save: after 1 steps each rank has values of its own: ranks "
			    "average every 2");
		CHECK_ERROR(tutti_export_safetensors(toy.trainer, path), TUTTI_ERR_INVALID,
			    "tutti_export_safetensors: after 1 steps each rank has values of its "
			    "own: ranks average every 2");
		CHECK(access(path, F_OK) != 0);
	}
	CHECK(tutti_export_safetensors(toy.trainer, path) == TUTTI_OK);
	CHECK(tutti_save(toy.trainer, saved_dir, 2) == TUTTI_OK);
	CHECK(tutti_save_wait(toy.trainer) == TUTTI_OK);
	toy_destroy(&toy);
	/* The count of steps continues. */
	toy_make(&toy, comm, &config);
	CHECK(tutti_load(toy.trainer, saved_dir, &step) == TUTTI_OK && step == 2);
	CHECK(toy_step(&toy, 2, SAMPLES) == TUTTI_OK);
	CHECK_ERROR(tutti_save(toy.trainer, saved_dir, 3), TUTTI_ERR_INVALID, "after 3 steps");
	toy_destroy(&toy);
	/* All ranks load the same values, whatever their interval of averages. */
	const tutti_train_config rarely = {COMMON, .strategy = TUTTI_LOCAL_SGD,
					   .local_sgd_steps = 5};
	toy_make(&toy, comm, &rarely);
	CHECK(tutti_load(toy.trainer, saved_dir, &step) == TUTTI_OK && step == 2);
	CHECK(tutti_check_replicas(toy.trainer) == TUTTI_OK);
	toy_destroy(&toy);
}

static void local_sgd(void **state)
{
	assert_int_equal(ranks_as_threads(2, alone, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(any_to_any, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(one_moment, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(sixteen_bits, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(one_file, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(taken_names, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(refused, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(misfit, saved_setup, saved_teardown),
		cmocka_unit_test_setup_teardown(states, saved_setup, saved_teardown),
		RANKS_TEST(other_states, 3, 3),
		cmocka_unit_test_setup_teardown(local_sgd, saved_setup, saved_teardown),
	};
	if (jansson_needed() != TUTTI_OK)
		return saved_refusal();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
