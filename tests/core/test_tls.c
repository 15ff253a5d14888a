/* no_tsan: both ends are in one thread */
/* Breaks when an attacker between two ends can read, change, cut or repeat what they say unnoticed,
 * when one without the key gets through, or when a byte is lost or doubled between calls that could
 * not finish. TEST_SEED repeats a run. */
#include "tests/core/tls_line.h"
#include "tests/openssl.h"

#include "core/clock.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "tests/unit.h"

#define HANDSHAKE_MOST 600 /* bytes that one end says in it */
#define SEALED(bytes)  ((bytes) + 22)

static const uint8_t key[TUTTI_KEY_BYTES] = "a key of both";
static const uint8_t other_key[TUTTI_KEY_BYTES] = "another key";
static uint64_t seed;

static uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	return z ^ (z >> 27) ^ (z >> 41);
}

static size_t random_below(uint64_t *state, size_t n)
{
	return (size_t)(random_next(state) % n);
}

static uint8_t byte_at(int end, size_t at)
{
	uint64_t state = at / 8 + ((uint64_t)end << 40);

	return (uint8_t)(random_next(&state) >> at % 8 * 8);
}

/* Both say a word, and both have heard it. */
static void expect_works(struct line *l)
{
	char word[8];

	for (int end = 0; end < 2; end++) {
		line_say(l, end, "a word", 7);
		assert_int_equal(line_hear(l, 1 - end, word, sizeof word), 7);
		assert_string_equal(word, "a word");
		assert_int_equal(line_hear(l, 1 - end, word, sizeof word), -1);
		assert_int_equal(errno, EAGAIN);
	}
}

static void one_key_is_enough(void **state)
{
	struct line l;

	line_up(&l);
	expect_works(&l);
	assert_true(l.wires[DIALER].bytes < HANDSHAKE_MOST);
	line_close(&l);
}

static void another_key_is_refused(void **state)
{
	for (int i = 0; i < 2; i++) {
		struct line l;
		line_open(&l, i ? key : other_key, i ? other_key : key);
		assert_false(line_shake(&l, SIZE_MAX));
		assert_int_equal(l.error[DIALER], EBADMSG);
		assert_int_equal(l.error[LISTENER], EBADMSG);
		assert_true(strlen(tls_error_text(l.tls[LISTENER])) > 0);
		line_close(&l);
	}
}

/* However the bytes come: all but the first so many late, and one by one. */
static void any_cut_means_the_same(void **state)
{
	for (size_t first = 0; first < HANDSHAKE_MOST + 40; first++) {
		struct line l;
		char word[10] = "";
		line_open(&l, key, key);
		l.wires[first % 2].limit = first;
		line_shake(&l, SIZE_MAX);
		l.wires[first % 2].limit = SIZE_MAX;
		line_pass(&l, SIZE_MAX);
		assert_true(line_shake(&l, first % 7 ? SIZE_MAX : 1));
		line_say(&l, DIALER, "123456789", 10);
		assert_int_equal(line_hear(&l, LISTENER, word, 10), 10);
		assert_string_equal(word, "123456789");
		line_close(&l);
	}
}

/* A record in two parts is nothing, and then all. */
static void a_part_of_a_record_is_nothing(void **state)
{
	static const char text[40] = "what nobody may see a part of";
	struct line l;
	char in[40];

	line_up(&l);
	for (size_t part = 0; part < SEALED(sizeof text); part++) {
		struct wire *w = &l.wires[LISTENER];
		w->limit = w->passed + part;
		line_say(&l, LISTENER, text, sizeof text);
		assert_int_equal(line_hear(&l, DIALER, in, sizeof in), -1);
		assert_int_equal(errno, EAGAIN);
		assert_false(tls_has_unread(l.tls[DIALER]));
		w->limit = SIZE_MAX;
		line_pass(&l, SIZE_MAX);
		assert_true(tls_has_unread(l.tls[DIALER]));
		assert_int_equal(line_hear(&l, DIALER, in, sizeof in), sizeof in);
		assert_memory_equal(in, text, sizeof text);
	}
	line_close(&l);
}

/* In the handshake too: what is let pass there (an old version's number) changes nothing. */
static void every_flipped_bit_of_the_handshake(void **state)
{
	uint64_t random = seed;
	int refused = 0, bytes[2];
	struct line l;

	line_up(&l);
	for (int end = 0; end < 2; end++)
		bytes[end] = (int)l.wires[end].bytes;
	line_close(&l);
	for (int at = 0; at < bytes[DIALER] + bytes[LISTENER]; at++) {
		struct wire *w;
		line_open(&l, key, key);
		w = &l.wires[at < bytes[DIALER] ? DIALER : LISTENER];
		w->flip = (size_t)(at < bytes[DIALER] ? at : at - bytes[DIALER]);
		w->bits = (uint8_t)(1u << random_below(&random, 8));
		if (line_shake(&l, SIZE_MAX))
			expect_works(&l);
		else
			refused++;
		line_close(&l);
	}
	assert_in_range(refused, bytes[DIALER] + bytes[LISTENER] - 20, HANDSHAKE_MOST * 2);
}

static void every_flipped_bit_of_a_record(void **state)
{
	char text[100] = "text", in[200];
	uint64_t random = seed;

	for (size_t at = 0; at < SEALED(sizeof text); at++) {
		struct line l;
		ssize_t n;
		line_up(&l);
		l.wires[DIALER].flip = l.wires[DIALER].bytes + at;
		l.wires[DIALER].bits = (uint8_t)(1u << random_below(&random, 8));
		line_say(&l, DIALER, text, sizeof text);
		n = line_hear(&l, LISTENER, in, sizeof in);
		assert_int_equal(n, -1);
		/* A longer length is still waited for. */
		if (errno == EAGAIN) {
			assert_in_range(at, 3, 4);
			line_cut(&l, DIALER);
			assert_int_equal(line_hear(&l, LISTENER, in, sizeof in), -1);
			assert_int_equal(errno, ECONNRESET);
		} else {
			assert_int_equal(errno, EBADMSG);
		}
		line_cut(&l, DIALER);
		assert_int_equal(line_hear(&l, LISTENER, in, sizeof in), -1);
		line_close(&l);
	}
}

/* What was said once is not heard twice, nor in another order, nor by who said it. */
static void no_record_is_believed_again(void **state)
{
	for (int how = 0; how < 3; how++) {
		struct line l;
		struct wire *w;
		size_t before, bytes = SEALED(5);
		char in[100];
		line_up(&l);
		w = &l.wires[DIALER];
		before = w->bytes;
		line_say(&l, DIALER, "first", 5);
		if (how == 1) {
			w->limit = w->passed;
			line_say(&l, DIALER, "secon", 5);
			line_say(&l, DIALER, "third", 5);
			assert_int_equal(
				send(w->to, w->seen + before + 2 * bytes, bytes, MSG_NOSIGNAL),
				bytes);
		} else {
			assert_int_equal(send(how == 0 ? w->to : w->from, w->seen + before, bytes,
					      MSG_NOSIGNAL),
					 bytes);
		}
		if (how < 2)
			assert_int_equal(line_hear(&l, LISTENER, in, 5), 5);
		assert_int_equal(line_hear(&l, how == 2 ? DIALER : LISTENER, in, sizeof in), -1);
		assert_int_equal(errno, EBADMSG);
		line_close(&l);
	}
}

/* Less than was asked for: that was all there is. So what is opened already is not all. */
static void less_is_all(void **state)
{
	char in[30];
	struct line l;

	line_up(&l);
	line_say(&l, DIALER, "what has been", 13);
	line_say(&l, DIALER, " said ", 6);
	assert_int_equal(line_hear(&l, LISTENER, in, 13), 13);
	line_say(&l, DIALER, "so far", 6);
	assert_int_equal(line_hear(&l, LISTENER, in + 13, sizeof in - 13), 12);
	assert_memory_equal(in, "what has been said so far", 25);
	line_close(&l);
}

/* The line is cut: whole records come, and then an error. */
static void a_cut_is_no_end(void **state)
{
	enum { RECORDS = 3, BYTES = 30 };

	for (size_t cut = 0; cut <= RECORDS * SEALED(BYTES); cut++) {
		char text[BYTES] = "thirty bytes", in[RECORDS * BYTES + 1];
		size_t whole = cut / SEALED(BYTES) * BYTES;
		struct line l;
		line_up(&l);
		l.wires[DIALER].limit = l.wires[DIALER].passed + cut;
		for (int i = 0; i < RECORDS; i++)
			line_say(&l, DIALER, text, sizeof text);
		line_cut(&l, DIALER);
		if (whole > 0)
			assert_int_equal(line_hear(&l, LISTENER, in, sizeof in), whole);
		for (int i = 0; i < 2; i++) {
			assert_int_equal(line_hear(&l, LISTENER, in, sizeof in), -1);
			assert_int_equal(errno, ECONNRESET);
		}
		line_close(&l);
	}
}

static void a_goodbye_is_an_end(void **state)
{
	char in[10];
	struct line l;

	for (int end = 0; end < 2; end++) {
		line_up(&l);
		line_say(&l, end, "bye", 4);
		assert_int_equal(tls_end(l.tls[end]), 0);
		line_cut(&l, end);
		assert_int_equal(line_hear(&l, 1 - end, in, sizeof in), 4);
		assert_false(tls_has_unread(l.tls[1 - end]));
		assert_int_equal(line_hear(&l, 1 - end, in, sizeof in), 0);
		assert_int_equal(line_hear(&l, 1 - end, in, sizeof in), 0);
		line_close(&l);
	}
}

/* One end of a long talk: what it has said and heard so far. */
struct talker {
	size_t said, heard, all;
	uint8_t *bytes; /* all that it says */
};

static void say_some(struct line *l, int end, struct talker *t, uint64_t *random)
{
	struct iovec iov[8];
	size_t at = t->said;
	int count = 0;
	ssize_t n;

	/* What is offered grows, and is cut anew each time. */
	while (count < 8 && at < t->all) {
		size_t bytes = random_below(random, random_below(random, 3) ? 200 : 40000);
		if (count == 7 || bytes > t->all - at)
			bytes = t->all - at;
		iov[count++] = (struct iovec){t->bytes + at, bytes};
		at += bytes;
	}
	if (count == 0)
		return;
	n = tls_send(l->tls[end], iov, count);
	if (n < 0)
		assert_int_equal(errno, EAGAIN);
	else
		t->said += (size_t)n;
	assert_true(t->said <= t->all);
}

static void hear_some(struct line *l, int end, struct talker *t, uint64_t *random)
{
	static uint8_t in[60000];
	struct iovec iov[3];
	size_t at = 0;
	ssize_t n;

	for (int i = 0; i < 3; i++) {
		iov[i] = (struct iovec){in + at, random_below(random, i == 1 ? 20000 : 20) + 1};
		at += iov[i].iov_len;
	}
	n = tls_recv(l->tls[end], iov, 3);
	if (n < 0)
		assert_int_equal(errno, EAGAIN);
	for (ssize_t i = 0; i < n; i++, t->heard++)
		if (in[i] != byte_at(1 - end, t->heard))
			fail_msg("byte %zu is wrong; seed %llu", t->heard,
				 (unsigned long long)seed);
}

/* Both at once, by sockets that are mostly full. */
static void random_talks(void **state)
{
	uint64_t random = seed;

	for (int round = 0; round < 60; round++) {
		struct talker talkers[2] = {{.said = 0}};
		int small = 4096;
		struct line l;
		line_up(&l);
		for (int end = 0; end < 2; end++) {
			struct talker *t = &talkers[end];
			setsockopt(l.fd[end], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
			t->all = random_below(&random, round % 2 ? 100001 : 300);
			t->bytes = malloc(t->all + 1);
			for (size_t i = 0; i < t->all; i++)
				t->bytes[i] = byte_at(end, i);
		}
		while (talkers[0].heard < talkers[1].all || talkers[1].heard < talkers[0].all) {
			int end = (int)random_below(&random, 2);
			if (random_below(&random, 2))
				say_some(&l, end, &talkers[end], &random);
			else
				hear_some(&l, end, &talkers[end], &random);
			line_pass(&l, random_below(&random, 3) ? SIZE_MAX : 100);
		}
		for (int end = 0; end < 2; end++) {
			/* The last word of it may still be in doubt. */
			while (talkers[end].said < talkers[end].all)
				say_some(&l, end, &talkers[end], &random);
			free(talkers[end].bytes);
		}
		line_close(&l);
	}
}

/* An end that dies is believed: the other end gets all that was sent by its account, and nothing
 * more. */
static void sent_is_what_can_be_read(void **state)
{
	static uint8_t out[200000], in[sizeof out + 1];
	uint64_t random = seed;

	for (size_t i = 0; i < sizeof out; i++)
		out[i] = byte_at(DIALER, i);
	for (int round = 0; round < 50; round++) {
		size_t said = 0, heard = 0, most;
		int small = 5000;
		struct line l;
		ssize_t n;
		line_up(&l);
		setsockopt(l.fd[DIALER], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
		most = l.wires[DIALER].passed + random_below(&random, sizeof out);
		l.wires[DIALER].limit = most;
		for (int i = 0; i < 200; i++) {
			struct iovec iov = {out + said, sizeof out - said};
			n = tls_send(l.tls[DIALER], &iov, 1);
			said += n > 0 ? (size_t)n : 0;
			line_pass(&l, 3000);
			while ((n = line_hear(&l, LISTENER, in + heard, sizeof out - heard)) > 0)
				heard += (size_t)n;
			/* As when its process is killed: what is in the kernel is still delivered.
			 */
			if (l.wires[DIALER].bytes >= most)
				break;
		}
		l.wires[DIALER].limit = SIZE_MAX;
		line_cut(&l, DIALER);
		do {
			n = line_hear(&l, LISTENER, in + heard, sizeof in + 1 - heard);
			heard += n > 0 ? (size_t)n : 0;
		} while (n > 0 || errno == EAGAIN);
		assert_int_equal(errno, ECONNRESET);
		assert_int_equal(heard, said);
		assert_memory_equal(in, out, heard);
		line_close(&l);
	}
}

static bool contains(const struct wire *w, const void *what, size_t bytes)
{
	return memmem(w->seen, w->bytes, what, bytes) != NULL;
}

static void nothing_can_be_read_on_the_way(void **state)
{
	static const char text[] = "known to both ends and to nobody else";
	char in[sizeof text];
	struct line l;

	line_up(&l);
	line_say(&l, DIALER, text, sizeof text);
	assert_int_equal(line_hear(&l, LISTENER, in, sizeof in), sizeof in);
	assert_string_equal(in, text);
	assert_int_equal(l.wires[DIALER].passed, l.wires[DIALER].bytes);
	for (size_t at = 0; at + 8 <= sizeof text; at++)
		assert_false(contains(&l.wires[DIALER], text + at, 8));
	assert_false(contains(&l.wires[DIALER], key, 8));
	line_close(&l);
}

/* A key is used for so many records and not for more: the message that says so makes the stream
 * longer. */
static void keys_are_changed_in_time(void **state)
{
	static uint8_t in[65536];
	size_t rounds = TLS_REKEY / 1024, before;
	struct line l;

	line_up(&l);
	before = l.wires[LISTENER].bytes;
	for (size_t i = 0; i < rounds + 2; i++) {
		for (int word = 0; word < 1024; word++) {
			struct iovec iov = {&word, 1};
			assert_int_equal(tls_send(l.tls[LISTENER], &iov, 1), 1);
			if (word % 64 == 63)
				line_pass(&l, SIZE_MAX);
		}
		assert_int_equal(line_hear(&l, DIALER, in, sizeof in), 1024);
		for (int word = 0; word < 1024; word++)
			assert_int_equal(in[word], word & 255);
		if (i == rounds - 1)
			assert_int_equal(l.wires[LISTENER].bytes - before, SEALED(1u) * TLS_REKEY);
		/* The middle need not remember all of it. */
		l.wires[LISTENER].bytes -= l.wires[LISTENER].passed;
		before -= l.wires[LISTENER].passed;
		l.wires[LISTENER].passed = 0;
	}
	assert_int_equal(l.wires[LISTENER].bytes - before,
			 SEALED(1u) * (TLS_REKEY + 2048) + SEALED(5u));
	expect_works(&l);
	line_close(&l);
}

static void nothing_is_allocated_on_the_way(void **state)
{
	static uint8_t out[100000], in[sizeof out];
	size_t before = 0;
	struct line l;

	line_up(&l);
	for (int round = 0; round < 30; round++) {
		size_t heard = 0;
		if (round == 2)
			before = mallinfo2().uordblks;
		line_say(&l, LISTENER, out, sizeof out);
		while (heard < sizeof in) {
			ssize_t n = line_hear(&l, DIALER, in + heard, sizeof in - heard);
			heard += n > 0 ? (size_t)n : 0;
		}
		l.wires[LISTENER].bytes = l.wires[LISTENER].passed = 0;
	}
	assert_int_equal(mallinfo2().uordblks, before);
	line_close(&l);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_key_is_enough),
		cmocka_unit_test(another_key_is_refused),
		cmocka_unit_test(any_cut_means_the_same),
		cmocka_unit_test(a_part_of_a_record_is_nothing),
		cmocka_unit_test(every_flipped_bit_of_the_handshake),
		cmocka_unit_test(every_flipped_bit_of_a_record),
		cmocka_unit_test(no_record_is_believed_again),
		cmocka_unit_test(less_is_all),
		cmocka_unit_test(a_cut_is_no_end),
		cmocka_unit_test(a_goodbye_is_an_end),
		cmocka_unit_test(random_talks),
		cmocka_unit_test(sent_is_what_can_be_read),
		cmocka_unit_test(nothing_can_be_read_on_the_way),
		cmocka_unit_test(keys_are_changed_in_time),
		cmocka_unit_test(nothing_is_allocated_on_the_way),
	};
	const char *given = getenv("TEST_SEED");

	if (!openssl_is_here())
		return 77;
	seed = given ? strtoull(given, NULL, 0) : clock_now_ns();
	printf("TEST_SEED=%llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
