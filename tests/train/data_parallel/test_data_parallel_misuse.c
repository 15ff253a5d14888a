/* What would break: a mistake that is not refused, or refused without saying what to do; and models
 * without parameters or elements, which are no mistake. */
#include "tests/limit.h"
#include "tests/train/data_parallel/network.h"
#include "tests/train/ranks.h"

#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit.h"

static struct network network;
static struct net_batch data;
static struct net_replicas replicas;
static tutti_comm *comms[3];

static tutti_data_parallel_config good_config(tutti_model *model)
{
	tutti_data_parallel_config c = net_config(&network);

	c.model = model;
	return c;
}

static void expect_refused(const tutti_data_parallel_config *c, int n, tutti_status status,
			   const char *text)
{
	tutti_data_parallel *dp = (tutti_data_parallel *)(void *)&network;

	CHECK_ERROR(tutti_data_parallel_create(&dp, comms, n, c), status, text);
	assert_ptr_equal(dp, &network);
}

static void expect_mirrored_refused(const tutti_data_parallel_config *c, int n, tutti_status status,
				    const char *text)
{
	tutti_data_parallel *dp = (tutti_data_parallel *)(void *)&network;

	CHECK_ERROR(tutti_mirrored_create(&dp, comms, n, c), status, text);
	assert_ptr_equal(dp, &network);
}

static void test_configs(void **state)
{
	tutti_model *model = net_model();
	const tutti_data_parallel_config good = good_config(model);
	tutti_data_parallel_config c;

	assert_int_equal(tutti_init_all(comms, 2, NULL), TUTTI_OK);
	CHECK_ERROR(tutti_data_parallel_create(NULL, comms, 2, &good), TUTTI_ERR_INVALID,
		    "needs a place");
	CHECK_ERROR(tutti_mirrored_create(NULL, comms, 2, &good), TUTTI_ERR_INVALID,
		    "needs a place");
	expect_refused(NULL, 2, TUTTI_ERR_INVALID, "needs a config with a model");
	c = good, c.model = NULL;
	expect_refused(&c, 2, TUTTI_ERR_INVALID, "needs a config with a model");
	c = good, c.forward = NULL;
	expect_refused(&c, 2, TUTTI_ERR_INVALID, "forward is NULL");
	c = good, c.loss = NULL;
	expect_refused(&c, 2, TUTTI_ERR_INVALID, "loss is NULL");
	c = good, c.backward = NULL;
	expect_mirrored_refused(&c, 2, TUTTI_ERR_INVALID, "backward is NULL");
	c = good, c.output_count = 0;
	expect_refused(&c, 2, TUTTI_ERR_INVALID, "output_count is 0");
	c = good, c.reserved[7] = 1;
	expect_refused(&c, 2, TUTTI_ERR_INVALID, "zero-initialise");
	c = good, c.share_params = 1;
	expect_mirrored_refused(&c, 2, TUTTI_ERR_INVALID, "share_params is for DataParallel");
	tutti_model_destroy(model);
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
}

static void test_comms(void **state)
{
	tutti_model *model = net_model();
	const tutti_data_parallel_config good = good_config(model);

	assert_int_equal(tutti_init_all(comms, 3, NULL), TUTTI_OK);
	expect_refused(&good, 0, TUTTI_ERR_INVALID, "n is 0");
	expect_refused(&good, 2, TUTTI_ERR_INVALID, "it has 3, n is 2");
	tutti_comm *last = comms[2];
	comms[2] = NULL;
	expect_refused(&good, 3, TUTTI_ERR_INVALID, "comms[2] of 3 is NULL");
	comms[2] = comms[1];
	expect_refused(&good, 3, TUTTI_ERR_INVALID, "comms[2] is rank 1 of 3, behind rank 1 of 3");
	expect_mirrored_refused(&good, 3, TUTTI_ERR_INVALID, "pass ranks of one communicator");
	comms[2] = last;
	assert_int_equal(tutti_group_begin(), TUTTI_OK);
	expect_refused(&good, 3, TUTTI_ERR_INVALID, "group");
	assert_int_equal(tutti_group_end(NULL), TUTTI_OK);
	tutti_model_destroy(model);
	for (int r = 0; r < 3; r++)
		tutti_comm_destroy(comms[r]);
}

static void test_train_configs(void **state)
{
	static const struct {
		tutti_train_config train;
		tutti_status gathered, mirrored;
		const char *text;
	} cases[] = {
		{{.strategy = TUTTI_FSDP},
		 TUTTI_ERR_UNSUPPORTED,
		 TUTTI_ERR_UNSUPPORTED,
		 "set train.strategy to TUTTI_DDP"},
		{{.strategy = TUTTI_ZERO1}, TUTTI_ERR_UNSUPPORTED, TUTTI_OK, "one optimizer"},
		{{.on_device = 1}, TUTTI_ERR_UNSUPPORTED, TUTTI_ERR_UNSUPPORTED, "host memory"},
		{{.param_dtype = TUTTI_BF16, .grad_dtype = TUTTI_BF16},
		 TUTTI_ERR_UNSUPPORTED,
		 TUTTI_OK,
		 "summed in f32"},
		{{.deterministic = 2}, TUTTI_ERR_UNSUPPORTED, TUTTI_OK, "train.deterministic to 1"},
		{{.memory_limit = 1 << 20}, TUTTI_ERR_UNSUPPORTED, TUTTI_OK, "train.memory_limit"},
		{{.param_dtype = TUTTI_I8}, TUTTI_ERR_INVALID, TUTTI_ERR_INVALID, "param_dtype"},
		{{.param_dtype = (tutti_dtype)77},
		 TUTTI_ERR_INVALID,
		 TUTTI_ERR_INVALID,
		 "param_dtype 77"},
		{{.max_grad_norm = -1}, TUTTI_ERR_INVALID, TUTTI_ERR_INVALID, "max_grad_norm"},
	};
	tutti_model *model = net_model();
	tutti_data_parallel_config c = good_config(model);

	assert_int_equal(tutti_init_all(comms, 2, NULL), TUTTI_OK);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		tutti_data_parallel *dp;
		c.train = &cases[i].train;
		expect_refused(&c, 2, cases[i].gathered, cases[i].text);
		if (cases[i].mirrored != TUTTI_OK) {
			expect_mirrored_refused(&c, 2, cases[i].mirrored, cases[i].text);
			continue;
		}
		assert_int_equal(tutti_mirrored_create(&dp, comms, 2, &c), TUTTI_OK);
		tutti_data_parallel_destroy(dp);
	}
	tutti_model_destroy(model);
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
}

/* Without parameters, or without one that is trained. */
static void test_empty_models(void **state)
{
	const int64_t shape[] = {4};

	for (int params = 0; params < 2; params++)
		for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
			tutti_data_parallel_config c = good_config(NULL);
			assert_int_equal(tutti_model_create(&c.model), TUTTI_OK);
			int unit = tutti_model_unit(c.model, "unit");
			if (params > 0)
				assert_int_equal(tutti_model_param(c.model, unit, "p", 1, shape,
								   TUTTI_PARAM_FROZEN),
						 0);
			net_start(&replicas, is_mirrored, 2, &c);
			net_stop(&replicas);
		}
}

/* What is one memory for all replicas. */
static void test_shared_memory(void **state)
{
	static float values[4], grads[4];
	static int64_t position;
	const int64_t shape[] = {4};
	tutti_model *models[3];

	assert_int_equal(tutti_init_all(comms, 2, NULL), TUTTI_OK);
	for (int i = 0; i < 3; i++)
		models[i] = net_model();
	assert_int_equal(tutti_model_param_extern(models[0], 0, "mine", 1, shape, TUTTI_F32, values,
						  grads, 0),
			 NET_PARAMS);
	assert_int_equal(tutti_model_buffer(models[1], "mean", TUTTI_F32, 4, values), 0);
	assert_int_equal(tutti_model_state(models[2], "sampler", &position, sizeof position, 0),
			 TUTTI_OK);
	static const char *const texts[] = {"Parameter 'mine'", "Buffer 'mean'", "State 'sampler'"};
	for (int i = 0; i < 3; i++) {
		const tutti_data_parallel_config c = good_config(models[i]);
		expect_mirrored_refused(&c, 2, TUTTI_ERR_INVALID, texts[i]);
		if (i == 0)
			expect_refused(&c, 2, TUTTI_ERR_INVALID,
				       "parameter 'mine' lies in the caller's memory");
	}
	for (int i = 0; i < 3; i++)
		tutti_model_destroy(models[i]);
	tutti_comm_destroy(comms[0]);
	tutti_comm_destroy(comms[1]);
}

static const tutti_optimizer sgd = {.kind = TUTTI_SGD, .lr = 0.1f};

static void expect_step_refused(tutti_data_parallel *dp, const tutti_data_parallel_batch *batch,
				const tutti_optimizer *groups, const char *text)
{
	CHECK_ERROR(tutti_data_parallel_step(dp, batch, groups, 1, NULL), TUTTI_ERR_INVALID, text);
}

static void check_steps(tutti_data_parallel *dp)
{
	float outputs[8 * NET_OUT];
	const tutti_data_parallel_batch good = {
		.inputs = data.inputs, .targets = data.targets, .items = 8};
	tutti_data_parallel_batch b;
	tutti_optimizer bad = sgd;
	tutti_train_stats stats;

	expect_step_refused(dp, NULL, &sgd, "needs a batch");
	b = good, b.items = 0;
	expect_step_refused(dp, &b, &sgd, "the batch has no items");
	b = good, b.inputs = NULL;
	expect_step_refused(dp, &b, &sgd, "the inputs of 8 items are at NULL");
	b = good, b.targets = NULL;
	expect_step_refused(dp, &b, &sgd, "the targets of 8 items are at NULL");
	b = good, b.items = SIZE_MAX / 4;
	expect_step_refused(dp, &b, &sgd, "too many for memory");
	expect_step_refused(dp, &good, NULL, "needs at least one group");
	bad.lr = -1;
	expect_step_refused(dp, &good, &bad, "learning rate -1");
	CHECK_ERROR(tutti_data_parallel_forward(dp, &good), TUTTI_ERR_INVALID, "outputs is NULL");
	b = good, b.items = 0, b.outputs = outputs;
	CHECK_ERROR(tutti_data_parallel_forward(dp, &b), TUTTI_ERR_INVALID, "there are 0 items");
	CHECK_ERROR(tutti_data_parallel_run(dp, NULL, NULL), TUTTI_ERR_INVALID, "a function");
	CHECK_ERROR(tutti_data_parallel_stats(dp, 2, &stats), TUTTI_ERR_INVALID, "it got 2");
	CHECK_ERROR(tutti_data_parallel_stats(dp, 0, NULL), TUTTI_ERR_INVALID, "NULL");
	/* None of these was the beginning of a step. */
	assert_int_equal(tutti_data_parallel_step(dp, &good, &sgd, 1, NULL), TUTTI_OK);
	const tutti_optimizer other = {
		.kind = TUTTI_ADAMW, .lr = 0.1f, .beta1 = 0.9f, .beta2 = 0.9f, .eps = 1e-8f};
	expect_step_refused(dp, &good, &other, "was trained with TUTTI_SGD");
	assert_int_equal(tutti_data_parallel_step(dp, &good, &sgd, 1, NULL), TUTTI_OK);
}

static void test_steps(void **state)
{
	const tutti_data_parallel_batch any = {.items = 1};

	net_batch(&data, 0, NET_ITEMS);
	expect_step_refused(NULL, &any, &sgd, "needs a tutti_data_parallel");
	CHECK_ERROR(tutti_data_parallel_forward(NULL, &any), TUTTI_ERR_INVALID,
		    "needs a tutti_data_parallel");
	for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
		const tutti_data_parallel_config c = good_config(NULL);
		net_start(&replicas, is_mirrored, 2, &c);
		check_steps(replicas.dp);
		net_stop(&replicas);
	}
	tutti_data_parallel_destroy(NULL);
}

/* What functions of the program may get wrong. */
static tutti_status ask_wrongly(tutti_replica *r)
{
	CHECK(!tutti_replica_param(r, NET_PARAMS));
	CHECK_MESSAGE("tutti_replica_param: there is no parameter 4 among 4");
	CHECK(!tutti_replica_param(NULL, 0));
	CHECK_MESSAGE("needs a replica");
	CHECK(!tutti_replica_grad(r, -1));
	CHECK_MESSAGE("tutti_replica_grad: there is no parameter -1 among 4");
	CHECK(!tutti_replica_grad(r, NET_PARAMS - 1));
	CHECK_MESSAGE("parameter 'shift' is frozen and has no gradient");
	CHECK_ERROR(tutti_replica_grad_ready(r, NET_PARAMS), TUTTI_ERR_INVALID,
		    "tutti_replica_grad_ready: there is no parameter 4 among 4");
	CHECK_ERROR(tutti_replica_grad_ready(NULL, 0), TUTTI_ERR_INVALID, "needs a replica");
	return TUTTI_OK;
}

static void test_functions(void **state)
{
	float outputs[NET_OUT];
	const tutti_data_parallel_batch one = {
		.inputs = data.inputs, .items = 1, .outputs = outputs};

	for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
		tutti_data_parallel_config c = good_config(NULL);
		c.forward = ask_wrongly;
		net_start(&replicas, is_mirrored, 1, &c);
		assert_int_equal(tutti_data_parallel_forward(replicas.dp, &one), TUTTI_OK);
		net_stop(&replicas);
	}
}

static struct net_replicas others;
static tutti_data_parallel *made, *other;

static tutti_status destroy_in_function(tutti_replica *r)
{
	if (r->index == 1)
		tutti_data_parallel_destroy(made);
	return TUTTI_OK;
}

static void *destroy_main(void *arg)
{
	tutti_data_parallel_destroy(arg);
	return NULL;
}

/* The function has a thread of its own. */
static tutti_status destroy_in_thread(tutti_replica *r)
{
	pthread_t thread;

	if (r->index == 1) {
		CHECK(pthread_create(&thread, NULL, destroy_main, made) == 0);
		pthread_join(thread, NULL);
	}
	return TUTTI_OK;
}

static tutti_status do_nothing(tutti_trainer *trainer, int replica, void *arg)
{
	return TUTTI_OK;
}

/* A call of other replicas follows. */
static tutti_status destroy_before_call(tutti_replica *r)
{
	if (r->index == 1) {
		tutti_data_parallel_destroy(made);
		CHECK(tutti_data_parallel_run(other, do_nothing, NULL) == TUTTI_OK);
	}
	return TUTTI_OK;
}

static tutti_status destroy_in_run(tutti_trainer *trainer, int replica, void *arg)
{
	tutti_data_parallel_destroy(made);
	return TUTTI_OK;
}

/* What a forked child may not do, and what does nothing there. Returns its exit status. */
static int in_forked_child(const tutti_data_parallel_batch *batch)
{
	int code = -1;
	pid_t pid = fork();

	if (pid == 0) {
		test_limit(60);
		tutti_status status = tutti_data_parallel_step(made, batch, &sgd, 1, NULL);
		tutti_data_parallel_destroy(made);
		_exit(status == TUTTI_ERR_INVALID &&
				      strstr(tutti_comm_error(NULL), "this one was forked")
			      ? 0
			      : 1);
	}
	return waitpid(pid, &code, 0) == pid ? code : -1;
}

static void check_destroy(tutti_replica_fn forward, bool is_mirrored)
{
	const tutti_data_parallel_batch good = {
		.inputs = data.inputs, .targets = data.targets, .items = 8};
	static const char wanted[] = "tutti_data_parallel_destroy was called by a function";
	tutti_data_parallel_config c = good_config(NULL);

	c.forward = forward;
	net_start(&replicas, is_mirrored, 2, &c);
	net_start(&others, true, 1, &c);
	made = replicas.dp;
	other = others.dp;
	expect_step_refused(made, &good, &sgd, wanted);
	CHECK_ERROR(tutti_data_parallel_run(made, destroy_in_run, NULL), TUTTI_ERR_INVALID, wanted);
	CHECK(tutti_data_parallel_run(made, do_nothing, NULL) == TUTTI_OK);
	assert_int_equal(in_forked_child(&good), 0);
	expect_step_refused(made, &good, &sgd, wanted); /* all is still there */
	net_stop(&replicas);
	net_stop(&others);
}

/* The threads that destroy would wait for are in a step, or not in this process. */
static void test_destroy(void **state)
{
	for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
		check_destroy(destroy_in_function, is_mirrored);
		check_destroy(destroy_in_thread, is_mirrored);
		check_destroy(destroy_before_call, is_mirrored);
	}
}

/* No parameter has elements (a dimension is 0), so copies have no bytes: parameters and gradients
 * at NULL would be taken for an error. */
static tutti_status see_param(tutti_replica *replica)
{
	for (size_t i = 0; i < replica->items; i++)
		replica->outputs[i] = 1;
	return tutti_replica_param(replica, 0) ? TUTTI_OK : TUTTI_ERR_INVALID;
}

static tutti_status set_loss(tutti_replica *replica)
{
	replica->loss = (double)replica->items;
	for (size_t i = 0; i < replica->items; i++)
		replica->output_grads[i] = 1;
	return TUTTI_OK;
}

static tutti_status see_grad(tutti_replica *replica)
{
	return tutti_replica_grad(replica, 0) ? tutti_replica_grad_ready(replica, 0)
					      : TUTTI_ERR_INVALID;
}

static tutti_data_parallel_config config_without_elements(int params)
{
	const int64_t shapes[2][3] = {{0, 16, 1}, {4, 0, 2}};
	tutti_data_parallel_config config = {
		.forward = see_param, .loss = set_loss, .backward = see_grad, .output_count = 1};

	assert_int_equal(tutti_model_create(&config.model), TUTTI_OK);
	assert_int_equal(tutti_model_unit(config.model, "unit"), 0);
	for (int p = 0; p < params; p++)
		assert_int_equal(tutti_model_param(config.model, 0, p ? "b" : "a", 3, shapes[p], 0),
				 p);
	return config;
}

static void run_without_elements(bool is_mirrored, int n, int params)
{
	const tutti_data_parallel_batch batch = {.items = 8};
	const tutti_data_parallel_config config = config_without_elements(params);
	tutti_data_parallel_info info;

	net_start(&replicas, is_mirrored, n, &config);
	for (int i = 0; i < 2; i++)
		assert_int_equal(tutti_data_parallel_step(replicas.dp, &batch, &sgd, 1, &info),
				 TUTTI_OK);
	assert_true(info.loss == 1 && info.step.items == 8 && info.step.grad_norm == 0);
	net_stop(&replicas);
}

static void test_no_elements(void **state)
{
	for (int n = 1; n <= 4; n++)
		for (int params = 1; params <= 2; params++) {
			run_without_elements(false, n, params);
			run_without_elements(true, n, params);
		}
}

/* A function of the program that leaves a step open. */
static tutti_status begin_step(tutti_trainer *trainer, int replica, void *arg)
{
	return tutti_micro_batch(trainer, TUTTI_PASS_LAST, 1, NULL);
}

static void test_a_step_that_stays_open(void **state)
{
	const tutti_data_parallel_config config = config_without_elements(1);

	net_start(&replicas, false, 1, &config);
	CHECK_ERROR(tutti_data_parallel_run(replicas.dp, begin_step, NULL), TUTTI_ERR_INVALID,
		    "tutti_data_parallel_run: the function has begun a step of replica 0's "
		    "trainer and not ended it: steps are those of tutti_data_parallel_step.");
	net_stop(&replicas);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_configs),
		cmocka_unit_test(test_comms),
		cmocka_unit_test(test_train_configs),
		cmocka_unit_test(test_empty_models),
		cmocka_unit_test(test_shared_memory),
		cmocka_unit_test(test_steps),
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_no_elements),
		cmocka_unit_test(test_a_step_that_stays_open),
		cmocka_unit_test(test_destroy),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL) || checks_failed();
}
