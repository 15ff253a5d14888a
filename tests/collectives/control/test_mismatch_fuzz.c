/* Would break: random programs of collectives in which one rank goes wrong somewhere: another
 * count, dtype, op, root or collective, a call too many or too few, waiting at other places. No
 * rank hangs, none has a call that ends well with wrong bits, and in the end all know of the
 * mismatch. */
#include "tests/limit.h"
#include "tests/collectives/any_call.h"
#include "tests/random.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit.h"

#define LENGTH 14 /* calls of a right program */
#define MOST   20 /* with barriers at its end, until the mismatch shows */
#define TRIALS 60

static struct any_call random_call(uint64_t *seed, int n)
{
	static const tutti_dtype dtypes[] = {TUTTI_F32, TUTTI_I32, TUTTI_F64};
	uint64_t size = random_below(seed, 4);
	struct any_call call = {
		.collective = (enum collective)(random_next(seed) % (COLL_ALL_TO_ALLV + 1)),
		.dtype = dtypes[random_below(seed, 3)],
		.op = random_next(seed) % 2 ? TUTTI_SUM : TUTTI_MAX,
		.root = (int)(random_next(seed) % (uint64_t)n),
		.count = random_next(seed) % (size == 0   ? 4
					      : size == 3 ? 40000
							  : 1200),
		.shift = random_next(seed) % 3};
	if (call.collective == COLL_ALL_TO_ALLV)
		call.shift = 0;
	if (call.collective == COLL_BARRIER)
		call.count = 0;
	return call;
}

static const struct any_call barrier = {COLL_BARRIER, TUTTI_F32, TUTTI_SUM, 0, 0, 0};

struct program {
	struct any_call calls[LENGTH + 1];
	int length;
	uint64_t waits; /* bit k: call k is blocking */
};

static bool is_same(const struct any_call *a, const struct any_call *b)
{
	char x[128], y[128];
	any_words(a, 4, 0, x, sizeof x);
	any_words(b, 4, 0, y, sizeof y);
	return strcmp(x, y) == 0;
}

/* Its words change: what a collective does not look at stays as it is. */
static void change(struct any_call *call, uint64_t *seed, int n)
{
	struct any_call old = *call;
	while (is_same(&old, call)) {
		struct any_call other = random_call(seed, n);
		*call = old;
		switch (random_below(seed, 5)) {
		case 0:
			call->count += call->collective == COLL_BARRIER ? 0 : 1 + other.count;
			break;
		case 1:
			call->dtype = other.dtype;
			break;
		case 2:
			call->op = other.op;
			break;
		case 3:
			call->root = other.root;
			break;
		default:
			*call = other;
		}
	}
}

static void go_wrong(struct program *p, uint64_t *seed, int n)
{
	int at = (int)(random_next(seed) % (uint64_t)p->length);
	struct any_call *call = &p->calls[at];
	size_t rest = sizeof *call * (size_t)(p->length - at);

	switch (random_below(seed, 4)) {
	case 0:
		memmove(call, call + 1, rest - sizeof *call);
		p->length--;
		break;
	case 1:
		memmove(call + 1, call, rest);
		p->length++;
		change(call, seed, n);
		break;
	default:
		change(call, seed, n);
	}
}

/* One barrier too few at the end would be no mistake: there are barriers anyway. */
static bool is_right(const struct program *p, const struct program *right)
{
	for (int k = 0; k < MOST; k++) {
		const struct any_call *a = k < p->length ? &p->calls[k] : &barrier;
		const struct any_call *b = k < right->length ? &right->calls[k] : &barrier;
		if (!is_same(a, b))
			return false;
	}
	return true;
}

struct rank {
	tutti_comm *comm;
	struct program program;
	pthread_t thread;
	tutti_status status;
	bool is_wrong;
};

static void take(struct rank *r, struct any_made *made, tutti_status status)
{
	if (status == TUTTI_OK && !any_is_right(made))
		r->is_wrong = true;
	if (r->status == TUTTI_OK)
		r->status = status;
	any_free(made);
}

static void *run(void *arg)
{
	struct rank *r = arg;
	struct any_made made[LENGTH + 1];
	tutti_work *works[LENGTH + 1] = {0};
	int started = 0;

	for (; started < r->program.length && r->status == TUTTI_OK; started++) {
		bool waits = r->program.waits >> started & 1;
		r->status = any_start(&made[started], &r->program.calls[started], r->comm,
				      waits ? NULL : &works[started]);
	}
	tutti_status ended = r->status;
	for (int k = 0; k < started; k++) {
		bool waited = r->program.waits >> k & 1;
		bool is_last = k == started - 1;
		if (waited || (is_last && ended != TUTTI_OK))
			take(r, &made[k], is_last ? ended : TUTTI_OK);
		else
			take(r, &made[k], tutti_work_wait(&works[k], 0));
	}
	for (int k = started; k < MOST && r->status == TUTTI_OK; k++) {
		struct any_made last;
		take(r, &last, any_start(&last, &barrier, r->comm, NULL));
	}
	return NULL;
}

static void set_way(uint64_t which)
{
	static const char *const transports[] = {"shm,tcp", "shm,tcp", "shm", "tcp"};
	setenv("TUTTI_WINDOW", which < 2 ? "1" : "0", 1);
	setenv("TUTTI_TRANSPORTS", transports[which], 1);
	if (which == 1)
		setenv("TUTTI_ALGO", "all_reduce=direct,all_gather=direct", 1);
	else
		unsetenv("TUTTI_ALGO");
}

static void make_programs(struct rank *ranks, int n, uint64_t *seed)
{
	struct program right = {.length = LENGTH};
	int odd = (int)(random_next(seed) % (uint64_t)n);

	for (int k = 0; k < LENGTH; k++)
		right.calls[k] = random_call(seed, n);
	for (int r = 0; r < n; r++) {
		ranks[r].program = right;
		ranks[r].program.waits = random_next(seed);
	}
	do {
		ranks[odd].program.length = right.length;
		memcpy(ranks[odd].program.calls, right.calls, sizeof right.calls);
		go_wrong(&ranks[odd].program, seed, n);
	} while (is_right(&ranks[odd].program, &right));
}

static void show(const struct rank *ranks, int n)
{
	char text[128];
	for (int r = 0; r < n; r++) {
		print_message("rank %d: %s, blocking %llx\n", r,
			      tutti_status_string(ranks[r].status),
			      (unsigned long long)ranks[r].program.waits);
		for (int k = 0; k < ranks[r].program.length; k++)
			print_message("    %s\n", any_words(&ranks[r].program.calls[k], n,
							    (uint64_t)k, text, sizeof text));
	}
}

/* Both calls; or, when only the counts of a pair of all_to_allv differ, one call and the pair's. */
static bool says_what_differs(const char *error)
{
	return strstr(error, "called") || strstr(error, "The ranks' counts do not agree") ||
	       strstr(error, "which sends another number");
}

static void trial(uint64_t seed)
{
	uint64_t first = seed;
	int n = 2 + (int)(random_below(&seed, 4));
	uint64_t way = random_below(&seed, 4);
	struct rank ranks[ANY_RANKS] = {{0}};
	tutti_comm *comms[ANY_RANKS];
	tutti_config config = {.timeout_ms = 60000};

	set_way(way);
	assert_int_equal(tutti_init_all(comms, n, &config), TUTTI_OK);
	make_programs(ranks, n, &seed);
	test_limit(50);
	for (int r = 0; r < n; r++) {
		ranks[r].comm = comms[r];
		assert_int_equal(pthread_create(&ranks[r].thread, NULL, run, &ranks[r]), 0);
	}
	for (int r = 0; r < n; r++)
		pthread_join(ranks[r].thread, NULL);
	test_limit(0);
	for (int r = 0; r < n; r++)
		if (ranks[r].is_wrong || ranks[r].status != TUTTI_ERR_MISMATCH ||
		    !says_what_differs(tutti_comm_error(comms[r]))) {
			show(ranks, n);
			fail_msg("seed %llu: rank %d of %d, way %d: %s%s: %s",
				 (unsigned long long)first, r, n, (int)way,
				 ranks[r].is_wrong ? "wrong bits, " : "",
				 tutti_status_string(ranks[r].status), tutti_comm_error(comms[r]));
		}
	for (int r = 0; r < n; r++)
		tutti_comm_destroy(comms[r]);
}

static void test_programs(void **state)
{
	const char *given = getenv("TEST_SEED");
	uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);

	print_message("TEST_SEED=%llu\n", (unsigned long long)seed);
	for (uint64_t k = 0; k < TRIALS; k++)
		trial(given && k == 0 ? seed : seed * 1000 + k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_programs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
