/* Breaks when a pointer is given to the wrong kind of memory, when host operations do not finish at
 * once, or when the proof kind, on which other tests rely, lets the CPU in, forgets an order, or
 * touches what was cancelled. */
#include "core/memory/memory.h"
#include "proof_kind.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit.h"

static struct memory_io copy_io(void *dst, const void *const *src, size_t bytes)
{
	return (struct memory_io){
		.op = MEMORY_COPY, .dst = dst, .src = src, .n_src = 1, .count = bytes};
}

static void progress_until(struct memory_queue *queue, struct tutti_done *done, int n)
{
	for (int calls = 0; n > 0; calls++) {
		assert_true(calls < 1000);
		queue->kind->progress(queue, done);
		for (struct tutti_io *io; (io = tutti_done_pop(done)); n--)
			assert_int_equal(io->status, TUTTI_OK);
	}
	assert_int_equal(n, 0);
}

/* Runs first: nothing but host is registered yet. */
static void host_alone(void **state)
{
	int here = 0;
	assert_ptr_equal(memory_of(&here), &memory_host);
	assert_ptr_equal(memory_of(NULL), &memory_host);
	assert_ptr_equal(memory_kind(TUTTI_MEMORY_HOST), &memory_host);
	assert_null(memory_kind(PROOF_KIND));
	assert_null(memory_kind(-1));
	assert_null(memory_kind(TUTTI_MEMORY_KINDS));
}

static void host_finishes_at_once(void **state)
{
	struct memory_queue *queue;
	struct tutti_done done;
	float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, sum[3] = {0}, copy[3] = {0};
	const void *src[] = {a, b}, *from = sum;

	tutti_done_init(&done);
	assert_int_equal(memory_host.open(&queue), TUTTI_OK);
	assert_ptr_equal(queue->kind, &memory_host);
	struct memory_io reduction = {.op = MEMORY_REDUCE,
				      .dst = sum,
				      .src = src,
				      .n_src = 2,
				      .count = 3,
				      .dtype = TUTTI_F32,
				      .reduce_op = TUTTI_SUM};
	memory_host.post(queue, &reduction, &done);
	assert_ptr_equal(tutti_done_pop(&done), &reduction.io);
	assert_true(sum[0] == 11 && sum[1] == 22 && sum[2] == 33);

	reduction.op = MEMORY_FINISH;
	reduction.reduce_op = TUTTI_AVG;
	reduction.divisor = 2;
	memory_host.post(queue, &reduction, &done);
	assert_ptr_equal(tutti_done_pop(&done), &reduction.io);
	assert_true(sum[0] == 5.5f && sum[1] == 11 && sum[2] == 16.5f);

	struct memory_io copying = copy_io(copy, &from, sizeof copy);
	memory_host.post(queue, &copying, &done);
	assert_ptr_equal(tutti_done_pop(&done), &copying.io);
	assert_memory_equal(copy, sum, sizeof copy);

	struct memory_io memory = {.op = MEMORY_ALLOC, .io = {.bytes = 1000}};
	memory_host.post(queue, &memory, &done);
	assert_ptr_equal(tutti_done_pop(&done), &memory.io);
	assert_int_equal(memory.io.status, TUTTI_OK);
	memset(memory.io.buf, 1, 1000);
	memory.op = MEMORY_FREE;
	memory_host.post(queue, &memory, &done);
	assert_ptr_equal(tutti_done_pop(&done), &memory.io);
	assert_int_equal(memory_host.progress(queue, &done), 0);
	memory_host.cancel(queue);
	memory_host.close(queue);
}

static void kinds_are_told_apart(void **state)
{
	int here = 0;
	assert_int_equal(memory_register(&memory_proof), TUTTI_OK); /* again is fine */
	struct memory_kind other = memory_proof;
	assert_int_equal(memory_register(&other), TUTTI_ERR_INVALID);
	other.id = TUTTI_MEMORY_KINDS;
	assert_int_equal(memory_register(&other), TUTTI_ERR_INVALID);
	other.id = -1;
	assert_int_equal(memory_register(&other), TUTTI_ERR_INVALID);

	char *p = proof_alloc(10000), *q = proof_alloc(1);
	assert_ptr_equal(memory_of(p), &memory_proof);
	assert_ptr_equal(memory_of(p + 9999), &memory_proof);
	assert_ptr_equal(memory_of(q), &memory_proof);
	assert_ptr_equal(memory_of(&here), &memory_host);
	assert_ptr_equal(memory_of(NULL), &memory_host);
	assert_int_equal(proof_allocated() > 10000, 1);
	proof_free(p);
	proof_free(q);
	assert_int_equal(proof_allocated(), 0);
}

static void the_cpu_may_not_touch_it(void **state)
{
	char *p = proof_alloc(100);
	int ends[2], status;

	assert_int_equal(pipe(ends), 0);
	assert_int_equal(write(ends[1], p, 10), -1);
	assert_int_equal(errno, EFAULT);
	pid_t child = fork();
	if (child == 0) {
		struct rlimit none = {0, 0};
		setrlimit(RLIMIT_CORE, &none);
		signal(SIGSEGV, SIG_DFL); /* cmocka catches it */
		*(volatile char *)p = 1;
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	close(ends[0]);
	close(ends[1]);
	proof_free(p);
}

static void proof_operations(void **state)
{
	struct memory_queue *queue;
	struct tutti_done done;
	float data[4] = {1, 2, 3, 4}, host[4] = {5, 5, 5, 5}, result[4];

	tutti_done_init(&done);
	assert_int_equal(memory_proof.open(&queue), TUTTI_OK);
	struct memory_io memory = {.op = MEMORY_ALLOC, .io = {.bytes = sizeof data}};
	memory_proof.post(queue, &memory, &done);
	assert_null(done.head); /* never at once */
	progress_until(queue, &done, 1);
	float *p = memory.io.buf;
	const void *from = data, *src[] = {p, host};

	struct memory_io in = copy_io(p, &from, sizeof data);
	memory_proof.post(queue, &in, &done);
	struct memory_io reduction = {.op = MEMORY_REDUCE,
				      .dst = p,
				      .src = src,
				      .n_src = 2,
				      .count = 4,
				      .dtype = TUTTI_F32,
				      .reduce_op = TUTTI_SUM};
	memory_proof.post(queue, &reduction, &done);
	const void *back = p;
	struct memory_io out = copy_io(result, &back, sizeof result);
	memory_proof.post(queue, &out, &done);
	progress_until(queue, &done, 3);
	for (int i = 0; i < 4; i++)
		assert_true(result[i] == data[i] + 5);

	memory.op = MEMORY_FREE;
	memory_proof.post(queue, &memory, &done);
	progress_until(queue, &done, 1);
	assert_int_equal(proof_allocated(), 0);
	memory_proof.close(queue);
}

/* Independent copies come in another order than posted, sooner or later; dependent ones never do.
 */
static void order_is_random_but_respects_overlap(void **state)
{
	enum { N = 8 };
	struct memory_queue *queue;
	struct tutti_done done;
	int *chain = proof_alloc((N + 1) * sizeof(int)), first = 42, last = 0;
	bool seen_out_of_order = false;

	tutti_done_init(&done);
	assert_int_equal(memory_proof.open(&queue), TUTTI_OK);
	for (int round = 0; round < 100; round++) {
		struct memory_io ios[2 * N];
		const void *src[2 * N];
		int apart[N];
		proof_write(chain, &first, sizeof first);
		for (int i = 0; i < N; i++) {
			src[i] = chain + i;
			ios[i] = copy_io(chain + i + 1, &src[i], sizeof(int));
			src[N + i] = &first;
			ios[N + i] = copy_io(&apart[i], &src[N + i], sizeof(int));
		}
		for (int i = 0; i < N; i++) {
			memory_proof.post(queue, &ios[i], &done);
			memory_proof.post(queue, &ios[N + i], &done);
		}
		struct tutti_io *before = NULL;
		for (int n = 0; n < 2 * N;) {
			memory_proof.progress(queue, &done);
			for (struct tutti_io *io; (io = tutti_done_pop(&done)); n++) {
				bool is_apart = (struct memory_io *)io >= ios + N;
				seen_out_of_order |= is_apart && before > io;
				before = is_apart ? io : before;
			}
		}
		proof_read(&last, chain + N, sizeof last);
		assert_int_equal(last, first++);
	}
	assert_true(seen_out_of_order);
	memory_proof.close(queue);
	proof_free(chain);
}

/* The ios are freed right after cancel: a sanitizer sees any touch. */
static void cancel_forgets(void **state)
{
	struct memory_queue *queue;
	struct tutti_done done;
	char text[] = "untouched", *p = proof_alloc(sizeof text);
	const char other[] = "something";
	const void *from = other;

	tutti_done_init(&done);
	proof_write(p, text, sizeof text);
	assert_int_equal(memory_proof.open(&queue), TUTTI_OK);
	struct memory_io *io = malloc(sizeof *io);
	*io = copy_io(p, &from, sizeof other);
	memory_proof.post(queue, io, &done);
	memory_proof.cancel(queue);
	free(io);
	for (int i = 0; i < 100; i++)
		assert_int_equal(memory_proof.progress(queue, &done), 0);
	assert_null(done.head);
	char now[sizeof text];
	proof_read(now, p, sizeof now);
	assert_string_equal(now, "untouched");

	struct memory_io later = copy_io(p, &from, sizeof other); /* the queue goes on */
	memory_proof.post(queue, &later, &done);
	progress_until(queue, &done, 1);
	proof_read(now, p, sizeof now);
	assert_string_equal(now, "something");
	memory_proof.close(queue);
	proof_free(p);
}

static int use_proof_kind(void **state)
{
	const char *seed = getenv("SEED");
	uint64_t value = seed ? strtoull(seed, NULL, 0) : (uint64_t)time(NULL);
	printf("SEED=%llu\n", (unsigned long long)value);
	return proof_kind_use(value) == TUTTI_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest host[] = {
		cmocka_unit_test(host_alone),
		cmocka_unit_test(host_finishes_at_once),
	};
	const struct CMUnitTest proof[] = {
		cmocka_unit_test(kinds_are_told_apart),
		cmocka_unit_test(the_cpu_may_not_touch_it),
		cmocka_unit_test(proof_operations),
		cmocka_unit_test(order_is_random_but_respects_overlap),
		cmocka_unit_test(cancel_forgets),
	};
	int failed = cmocka_run_group_tests(host, NULL, NULL);
	return failed + cmocka_run_group_tests(proof, use_proof_kind, NULL);
}
