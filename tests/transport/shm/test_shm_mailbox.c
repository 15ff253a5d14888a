/* Would break: messages of a mailbox that come twice, in another order, or with others' bytes; a
 * writer that overwrites what was not delivered; a reader or writer that believes a peer's counts
 * and lengths, and reads or writes outside of the mailbox. */
#include "tests/limit.h"
#include "tests/random.h"
#include "transport/shm/mailbox.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit.h"

#define MESSAGES 20000u

struct fixture {
	struct mailbox_shared *shared;
	struct mailbox_writer out;
	struct mailbox_reader in;
};

static void fixture_open(struct fixture *f)
{
	f->shared = aligned_alloc(128, sizeof *f->shared);
	assert_non_null(f->shared);
	memset(f->shared, 0, sizeof *f->shared);
	f->out = (struct mailbox_writer){.shared = f->shared};
	f->in = (struct mailbox_reader){.shared = f->shared};
}

/* Both sides know it from the number. */
static uint32_t bytes_of(uint64_t number)
{
	static const uint32_t sizes[] = {0,   1,   8,    63,   64,   65,    95,    96,    97,
					 128, 200, 1000, 4096, 5000, 16384, 16385, 40000, 65536};
	uint64_t state = number;

	return sizes[random_below(&state, sizeof sizes / sizeof *sizes)];
}

static void fill(uint8_t *data, uint64_t number)
{
	for (uint32_t i = 0; i < bytes_of(number); i++)
		data[i] = (uint8_t)(number * 31 + i);
}

static void *write_all(void *arg)
{
	struct fixture *f = arg;
	uint8_t data[MAILBOX_MESSAGE_BYTES];

	for (uint64_t n = 0; n < MESSAGES; n++) {
		struct mail mail = {.bytes = bytes_of(n), .tag = (int32_t)n, .after = ~(uint32_t)n};
		fill(data, n);
		while (!mailbox_send(&f->out, &mail, data))
			sched_yield();
	}
	return NULL;
}

static void expect(const struct mail *mail, const uint8_t *data, uint64_t number)
{
	uint8_t wanted[MAILBOX_MESSAGE_BYTES];

	assert_int_equal(mail->bytes, bytes_of(number));
	assert_int_equal(mail->tag, number);
	assert_int_equal(mail->after, ~(uint32_t)number);
	fill(wanted, number);
	assert_memory_equal(data, wanted, mail->bytes);
}

/* A reader delivers some of what it has taken later. */
static void test_order(void **state)
{
	struct fixture f;
	pthread_t writer;
	uint64_t seed = random_seed(), owed = 0;
	uint8_t data[MAILBOX_MESSAGE_BYTES];
	struct mail mail;

	fixture_open(&f);
	assert_int_equal(pthread_create(&writer, NULL, write_all, &f), 0);
	for (uint64_t n = 0; n < MESSAGES; n++) {
		while (!mailbox_peek(&f.in, &mail)) {
			for (; owed; owed--)
				mailbox_deliver(&f.in);
			sched_yield();
		}
		mailbox_take(&f.in, &mail, data);
		expect(&mail, data, n);
		owed++;
		for (uint64_t now = random_below(&seed, owed + 1); now; now--, owed--)
			mailbox_deliver(&f.in);
	}
	pthread_join(writer, NULL);
	assert_false(mailbox_has(&f.in));
	free(f.shared);
}

/* So many may be out, however short they are, whether they were taken or not. */
static void test_bound(void **state)
{
	struct fixture f;
	struct mail mail = {.bytes = 1}, got;
	uint8_t byte = 7;

	fixture_open(&f);
	for (unsigned i = 0; i < MAILBOX_CELLS; i++)
		assert_true(mailbox_send(&f.out, &mail, &byte));
	assert_false(mailbox_send(&f.out, &mail, &byte));
	for (unsigned i = 0; i < MAILBOX_CELLS; i++) {
		assert_true(mailbox_peek(&f.in, &got));
		mailbox_take(&f.in, &got, &byte);
	}
	assert_false(mailbox_has(&f.in));
	assert_false(mailbox_send(&f.out, &mail, &byte));
	mailbox_deliver(&f.in);
	assert_true(mailbox_send(&f.out, &mail, &byte));
	assert_false(mailbox_send(&f.out, &mail, &byte));
	free(f.shared);
}

/* Of long ones, few. */
static void test_long_bound(void **state)
{
	struct fixture f;
	struct mail mail = {.bytes = MAILBOX_SHORT_BYTES + 1}, got;
	static uint8_t data[MAILBOX_MESSAGE_BYTES];

	fixture_open(&f);
	for (unsigned i = 0; i < MAILBOX_LONG_MAX; i++)
		assert_true(mailbox_send(&f.out, &mail, data));
	assert_false(mailbox_send(&f.out, &mail, data));
	for (unsigned i = 0; i < MAILBOX_LONG_MAX; i++) {
		assert_true(mailbox_peek(&f.in, &got));
		mailbox_take(&f.in, &got, data);
	}
	assert_false(mailbox_send(&f.out, &mail, data)); /* the reader keeps them yet */
	mailbox_deliver(&f.in);
	assert_true(mailbox_send(&f.out, &mail, data));
	mail.bytes = MAILBOX_SHORT_BYTES;
	assert_true(mailbox_send(&f.out, &mail, data));
	/* A writer that keeps to no bound. */
	f.in.delivered--;
	f.shared->cells[f.in.taken % MAILBOX_CELLS].mail.bytes = MAILBOX_MESSAGE_BYTES;
	assert_false(mailbox_peek(&f.in, &got));
	assert_true(f.in.is_broken);
	free(f.shared);
}

/* Also by bytes. */
static void test_ring_bound(void **state)
{
	struct fixture f;
	struct mail mail = {.bytes = MAILBOX_SHORT_BYTES}, got;
	static uint8_t data[MAILBOX_MESSAGE_BYTES];

	fixture_open(&f);
	for (unsigned i = 0; i < MAILBOX_SHORT_RING_BYTES / MAILBOX_SHORT_BYTES; i++)
		assert_true(mailbox_send(&f.out, &mail, data));
	assert_false(mailbox_send(&f.out, &mail, data));
	mail.bytes = MAILBOX_INLINE_BYTES;
	assert_true(mailbox_send(&f.out, &mail, data));
	assert_true(mailbox_peek(&f.in, &got));
	mailbox_take(&f.in, &got, data);
	mail.bytes = MAILBOX_SHORT_BYTES;
	assert_true(mailbox_send(&f.out, &mail, data));
	free(f.shared);
}

static void take_all(struct fixture *f, uint8_t *data)
{
	struct mail got;

	while (mailbox_peek(&f->in, &got)) {
		mailbox_take(&f->in, &got, data);
		mailbox_deliver(&f->in);
	}
	/* The writer looks. */
	f->out.ring_taken = atomic_load(&f->shared->ring_taken);
	f->out.delivered = atomic_load(&f->shared->delivered);
}

/* A ring that was empty has room for as many messages as one that was never used. */
static void test_begins_anew(void **state)
{
	struct fixture f;
	struct mail mail = {.bytes = MAILBOX_SHORT_BYTES};
	static uint8_t data[MAILBOX_MESSAGE_BYTES];

	fixture_open(&f);
	for (int round = 0; round < 10; round++) {
		assert_true(mailbox_send(&f.out, &mail, data));
		take_all(&f, data);
		for (unsigned i = 0; i < MAILBOX_SHORT_RING_BYTES / MAILBOX_SHORT_BYTES; i++)
			assert_true(mailbox_send(&f.out, &mail, data));
		assert_false(mailbox_send(&f.out, &mail, data));
		take_all(&f, data);
	}
	free(f.shared);
}

/* That a peer stores where only the reader may. */
static void test_hostile_counts(void **state)
{
	static const uint64_t counts[] = {UINT64_MAX, 65, 1ull << 40};
	struct mail mail = {.bytes = MAILBOX_MESSAGE_BYTES};
	uint8_t data[MAILBOX_MESSAGE_BYTES] = {0};

	for (int which = 0; which < 2; which++)
		for (unsigned i = 0; i < 3; i++) {
			struct fixture f;
			fixture_open(&f);
			uint64_t count = which ? counts[i] + (1u << 20) : counts[i];
			atomic_store(which ? &f.shared->ring_taken : &f.shared->delivered, count);
			bool went = true;
			for (int k = 0; went && k < 100; k++)
				went = mailbox_send(&f.out, &mail, data);
			assert_false(went);
			assert_true(f.out.is_broken);
			free(f.shared);
		}
}

static void test_hostile_length(void **state)
{
	struct fixture f;
	struct mail mail = {.bytes = 8};
	uint8_t data[8] = {0};

	fixture_open(&f);
	assert_true(mailbox_send(&f.out, &mail, data));
	f.shared->cells[0].mail.bytes = MAILBOX_MESSAGE_BYTES + 1;
	assert_false(mailbox_peek(&f.in, &mail));
	assert_true(f.in.is_broken);
	assert_false(mailbox_has(&f.in));
	free(f.shared);
}

/* Of a message that begins before the last one ended, or ends behind the ring. */
static void test_hostile_place(void **state)
{
	static const uint64_t places[] = {0, MAILBOX_RING_BYTES - 64, UINT64_MAX - 127, UINT64_MAX};
	uint8_t data[256] = {0};

	for (unsigned i = 0; i < 4; i++) {
		struct fixture f;
		struct mail mail = {.bytes = sizeof data}, got;
		fixture_open(&f);
		for (unsigned k = 0; k < 2; k++)
			assert_true(mailbox_send(&f.out, &mail, data));
		assert_true(mailbox_peek(&f.in, &got));
		mailbox_take(&f.in, &got, data);
		f.shared->cells[1].mail.ring_at = places[i];
		assert_false(mailbox_peek(&f.in, &got));
		assert_true(f.in.is_broken);
		free(f.shared);
	}
}

/* A writer that puts in more than it has credit for. */
static void test_hostile_writer(void **state)
{
	struct fixture f;
	struct mail mail = {.bytes = 1}, got;
	uint8_t byte = 7;
	unsigned taken = 0;

	fixture_open(&f);
	for (unsigned i = 0; i < 3 * MAILBOX_CELLS; i++) {
		f.out.delivered = f.out.sent;
		assert_true(mailbox_send(&f.out, &mail, &byte));
		if (!mailbox_peek(&f.in, &got))
			break;
		mailbox_take(&f.in, &got, &byte);
		taken++;
	}
	assert_int_equal(taken, MAILBOX_CELLS);
	assert_true(f.in.is_broken);
	free(f.shared);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),          cmocka_unit_test(test_bound),
		cmocka_unit_test(test_long_bound),     cmocka_unit_test(test_ring_bound),
		cmocka_unit_test(test_hostile_counts), cmocka_unit_test(test_hostile_length),
		cmocka_unit_test(test_hostile_writer), cmocka_unit_test(test_hostile_place),
		cmocka_unit_test(test_begins_anew),
	};

	test_limit(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
