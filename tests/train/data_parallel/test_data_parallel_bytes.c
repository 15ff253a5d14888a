/* What would break: what DataParallel and Mirrored hold and send, against DDP: (n - 1) P parameters
 * and as many gradients from and to the first replica, one optimizer's state; 2 (n - 1) / n P
 * gradients of each replica, and a state in each. A step that allocates memory, or that hides
 * nothing. */
#include "tests/limit.h"
#include "tests/train/data_parallel/network.h"
#include "tests/train/ranks.h"

#include "train/data_parallel/data_parallel.h"

#include <stdatomic.h>
#include <string.h>

#include "tests/unit.h"

enum { STEPS = 3, ITEMS = 16, TRAINED = NET_TRAINED * 4, ALL = NET_COUNT * 4 };
enum { PADDED_GRADS = 192 + 128 + 64, PADDED_DATA = PADDED_GRADS + 64 };

static const tutti_optimizer adamw = {
	.kind = TUTTI_ADAMW, .lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .eps = 1e-8f};

static struct network network;
static struct net_batch data;
static float outputs[ITEMS * NET_OUT];
static const tutti_data_parallel_batch batch = {
	.inputs = data.inputs, .targets = data.targets, .items = ITEMS, .outputs = outputs};
static struct net_replicas replicas;
static tutti_data_parallel *dp; /* theirs */

/* Linked with --wrap of these: calls of all threads. */
static atomic_int allocations;
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
	atomic_fetch_add(&allocations, 1);
	return __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	atomic_fetch_add(&allocations, 1);
	return __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	atomic_fetch_add(&allocations, 1);
	return __real_realloc(old, bytes);
}

static void start(bool is_mirrored, bool shares, int n)
{
	tutti_data_parallel_config c = net_config(&network);

	net_batch(&data, 0, ITEMS);
	c.share_params = shares;
	net_start(&replicas, is_mirrored, n, &c);
	dp = replicas.dp;
	assert_int_equal(tutti_data_parallel_run(dp, net_init, NULL), TUTTI_OK);
	for (int s = 0; s < STEPS; s++)
		assert_int_equal(tutti_data_parallel_step(dp, &batch, &adamw, 1, NULL), TUTTI_OK);
}

static void check_gathered(bool shares, int n)
{
	start(false, shares, n);
	uint64_t moved = 0;

	for (int r = 0; r < n; r++) {
		tutti_train_stats s;
		assert_int_equal(tutti_data_parallel_stats(dp, r, &s), TUTTI_OK);
		assert_int_equal(s.param_bytes, shares && r > 0 ? 0 : ALL);
		assert_int_equal(s.grad_bytes, TRAINED);
		assert_int_equal(s.optimizer_bytes, r == 0 ? 2 * TRAINED : 0);
		uint64_t others = r == 0 && !shares ? (uint64_t)n - 1 : 0;
		assert_int_equal(s.sent_param_bytes, STEPS * others * ALL);
		assert_int_equal(s.sent_grad_bytes, r == 0 ? 0 : STEPS * TRAINED);
	}
	/* Each rank counts a collective's bytes in the window, and there is no other one.
	 * Parameters are padded to cache lines. */
	size_t params = shares ? 0 : PADDED_DATA;
	for (int r = 0; r < n && n > 1; r++) {
		tutti_stats stats;
		assert_int_equal(tutti_comm_stats(dp->replicas[r].copies, &stats), TUTTI_OK);
		moved += stats.window_bytes + stats.sent_bytes + stats.staged_bytes;
	}
	assert_int_equal(moved, n > 1 ? STEPS * (uint64_t)n * (params + PADDED_GRADS) : 0);
	net_stop(&replicas);
}

static void check_mirrored(int n)
{
	start(true, false, n);

	for (int r = 0; r < n; r++) {
		tutti_train_stats s;
		assert_int_equal(tutti_data_parallel_stats(dp, r, &s), TUTTI_OK);
		assert_int_equal(s.param_bytes, ALL);
		assert_int_equal(s.optimizer_bytes, 2 * TRAINED);
		assert_int_equal(s.sent_param_bytes, 0);
		assert_int_equal(s.sent_grad_bytes,
				 STEPS * (2 * (uint64_t)(n - 1) * TRAINED / (uint64_t)n));
	}
	net_stop(&replicas);
}

static void test_bytes(void **state)
{
	static const int sizes[] = {1, 2, 4};

	for (int i = 0; i < 3; i++) {
		check_gathered(false, sizes[i]);
		check_gathered(true, sizes[i]);
		check_mirrored(sizes[i]);
	}
}

/* The loss of DataParallel is one call on all outputs, of Mirrored one of each replica. Replica 0
 * has no items in a batch that is too small. */
static void test_calls(void **state)
{
	for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
		start(is_mirrored, false, 4);
		tutti_data_parallel_batch one = batch;
		memset(network.calls, 0, sizeof network.calls);
		one.items = 1;
		assert_int_equal(tutti_data_parallel_step(dp, &one, &adamw, 1, NULL), TUTTI_OK);
		assert_int_equal(network.calls[0], 0);
		assert_int_equal(network.calls[1], is_mirrored ? 0 : 1);
		assert_int_equal(network.calls[2], 0);
		net_stop(&replicas);
	}
}

static tutti_replica_fn own_backward;
static atomic_int early, late; /* buckets that had started when backward ended */

static tutti_status watch_backward(tutti_replica *r)
{
	const struct replica *replica = (const struct replica *)(const void *)r;
	tutti_status status = own_backward(r);

	atomic_fetch_add(&early, replica->trainer->buckets[0].is_started);
	atomic_fetch_add(&late, replica->trainer->buckets[1].is_started);
	return status;
}

/* Gradients that are ready early are on their way before backward has ended. */
static void test_overlaps(void **state)
{
	const tutti_train_config train = {.bucket_bytes = 1};
	tutti_data_parallel_config c = net_config(&network);

	own_backward = c.backward;
	c.backward = watch_backward;
	c.train = &train;
	net_start(&replicas, true, 2, &c);
	dp = replicas.dp;
	assert_int_equal(tutti_data_parallel_step(dp, &batch, &adamw, 1, NULL), TUTTI_OK);
	assert_int_equal(atomic_load(&early), 2);
	assert_int_equal(atomic_load(&late), 0);
	net_stop(&replicas);
}

/* Connections between ranks are made when a message is first sent, and accepted some time later:
 * such an allocation happens once, so of many rounds one is without any. */
static bool has_round_without_allocation(void)
{
	for (int round = 0; round < 50; round++) {
		int before = atomic_load(&allocations);
		for (int s = 0; s < STEPS; s++) {
			assert_int_equal(tutti_data_parallel_step(dp, &batch, &adamw, 1, NULL),
					 TUTTI_OK);
			assert_int_equal(tutti_data_parallel_forward(dp, &batch), TUTTI_OK);
		}
		if (atomic_load(&allocations) == before)
			return true;
	}
	return false;
}

static void test_allocates_nothing(void **state)
{
	for (int is_mirrored = 0; is_mirrored < 2; is_mirrored++) {
		start(is_mirrored, false, 2);
		assert_true(atomic_load(&allocations) > 0);
		assert_true(has_round_without_allocation());
		net_stop(&replicas);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_overlaps),
		cmocka_unit_test(test_allocates_nothing),
	};

	test_limit(300);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
