/* Cases of the suite: messages in pieces. Both ends cut as they like, and what arrives is the same
 * bytes, in the pieces and nowhere between them. */
#include "tests/transport/cases.h"
#include "tests/transport/world.h"

#include <stdlib.h>
#include <string.h>

#define GUARD 0xd7

/* One end of a message: a scatter of pieces over an arena, with guard bytes between them. */
struct scatter {
	size_t bytes, arena_bytes;
	uint8_t *arena;
	struct tutti_piece *pieces;
	uint32_t count;
	struct post post;
};

/* Cuts n bytes into at most max pieces, none of them empty, each at an odd place. */
static void scatter_init(struct scatter *s, size_t bytes, size_t max, uint64_t *random)
{
	size_t at = random_below(random, 70), left = bytes;

	memset(s, 0, sizeof *s);
	if (max > bytes)
		max = bytes;
	s->bytes = bytes;
	s->arena_bytes = bytes + 70 * (max + 2);
	s->arena = malloc(s->arena_bytes);
	s->pieces = calloc(max + 1, sizeof *s->pieces);
	assert_true(s->arena && s->pieces);
	memset(s->arena, GUARD, s->arena_bytes);
	for (; left > 0; s->count++) {
		size_t others = max - s->count - 1, n = left;
		if (others > 0)
			n = 1 + random_below(random, 2 * (left - others) / (others + 1) + 1);
		if (n > left - others)
			n = left - others;
		s->pieces[s->count] = (struct tutti_piece){s->arena + at, n};
		at += n + random_below(random, 3) * random_below(random, 35);
		left -= n;
	}
}

static void scatter_fill(struct scatter *s, uint64_t seed)
{
	uint8_t *all = malloc(s->bytes + 1);
	size_t at = 0;

	bytes_fill(all, s->bytes, seed);
	for (uint32_t i = 0; i < s->count; at += s->pieces[i++].bytes)
		memcpy(s->pieces[i].buf, all + at, s->pieces[i].bytes);
	free(all);
}

/* Nothing was written but the pieces. */
static void scatter_check_guards(const struct scatter *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		memset(s->pieces[i].buf, GUARD, s->pieces[i].bytes);
	if (s->arena_bytes && s->arena[0] == GUARD &&
	    memcmp(s->arena, s->arena + 1, s->arena_bytes - 1) == 0)
		return;
	for (size_t i = 0; i < s->arena_bytes; i++)
		if (s->arena[i] != GUARD)
			fail_msg("byte %zu of %zu between the pieces was written (seed %llu)", i,
				 s->arena_bytes, (unsigned long long)test_seed);
}

/* The pieces hold these bytes. */
static void scatter_check(const struct scatter *s, uint64_t seed)
{
	uint8_t *all = malloc(s->bytes + 1);
	size_t at = 0;

	for (uint32_t i = 0; i < s->count; at += s->pieces[i++].bytes)
		memcpy(all + at, s->pieces[i].buf, s->pieces[i].bytes);
	expect_bytes(all, s->bytes, seed);
	scatter_check_guards(s);
	free(all);
}

static void scatter_finish(struct scatter *s)
{
	free(s->arena);
	free(s->pieces);
}

/* What earlier use has left in the io must not matter. */
static void scatter_post(struct scatter *s, struct tutti_conn *conn, bool is_send, uint32_t tag)
{
	struct tutti_io *io = &s->post.io;

	memset(&s->post, 0x5c, sizeof s->post);
	s->post.is_done = false;
	io->buf = s->count == 1 ? s->pieces[0].buf : NULL;
	io->bytes = s->bytes;
	io->pieces = s->count == 1 ? NULL : s->pieces;
	io->piece_count = s->count;
	io->tag = tag;
	io->map = NULL;
	io->status = TUTTI_STATUS_MAX_;
	(is_send ? subject->transport->send : subject->transport->recv)(conn, io);
	assert_ptr_equal(io->conn, conn);
}

static size_t random_size(uint64_t *random)
{
	static const size_t odd[] = {0, 1, 2, 511, 513, 8191, 8192, 8208, 65535, 65537, 300000};

	if (random_below(random, 3) == 0)
		return random_below(random, 200000);
	return odd[random_below(random, sizeof odd / sizeof *odd)];
}

static size_t random_count(uint64_t *random)
{
	static const size_t counts[] = {1, 2, 3, 7, 31, 127, 128, 129, 130, 700, 5000};

	return counts[random_below(random, sizeof counts / sizeof *counts)];
}

void test_pieces_random(void **state)
{
	enum { MESSAGES = 100 };
	static struct scatter ends[2][2][MESSAGES]; /* whose; 0: received, 1: sent */
	uint64_t random = test_seed;
	struct world w;
	int next[4] = {0};

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (int i = 0; i < 2 * MESSAGES; i++) {
		int from = i % 2;
		size_t bytes = random_size(&random);
		struct scatter *out = &ends[from][1][i / 2], *in = &ends[1 - from][0][i / 2];
		scatter_init(out, bytes, random_count(&random), &random);
		scatter_init(in, bytes, random_count(&random), &random);
		scatter_fill(out, (uint64_t)i + 1);
	}
	for (int left = 4 * MESSAGES; left > 0;) {
		size_t kind = random_below(&random, 6), rank = kind / 2;
		if (kind >= 4 || next[kind] == MESSAGES) {
			world_pump_for(&w, (int)random_below(&random, 4));
			continue;
		}
		scatter_post(&ends[rank][kind % 2][next[kind]], w.conns[rank][1 - rank][0],
			     kind % 2, (uint32_t)next[kind]);
		next[kind]++;
		left--;
	}
	for (int i = 0; i < 2 * MESSAGES; i++) {
		int from = i % 2;
		struct scatter *out = &ends[from][1][i / 2], *in = &ends[1 - from][0][i / 2];
		world_expect_ok(&w, &in->post, 1);
		world_expect_ok(&w, &out->post, 1);
		scatter_check(in, (uint64_t)i + 1);
		scatter_check(out, (uint64_t)i + 1);
		scatter_finish(in);
		scatter_finish(out);
	}
	world_close(&w);
}

/* One message between two ways of cutting it. */
static void one_message(struct world *w, size_t bytes, size_t out_count, size_t in_count)
{
	uint64_t random = test_seed;
	struct scatter out, in;

	scatter_init(&out, bytes, out_count, &random);
	scatter_init(&in, bytes, in_count, &random);
	scatter_fill(&out, 5);
	scatter_post(&out, w->conns[0][1][0], true, 1);
	scatter_post(&in, w->conns[1][0][0], false, 1);
	world_expect_ok(w, &in.post, 1);
	world_expect_ok(w, &out.post, 1);
	scatter_check(&in, 5);
	scatter_finish(&out);
	scatter_finish(&in);
}

void test_pieces_of_one_byte(void **state)
{
	static const size_t sizes[] = {1, 2, 100, 528, 529, 8192, 70001};
	struct world w;

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		one_message(&w, sizes[i], sizes[i], 1);
		one_message(&w, sizes[i], 1, sizes[i]);
		one_message(&w, sizes[i], sizes[i], sizes[i]);
	}
	world_close(&w);
}

/* Both directions at once, in hundreds of pieces, far larger than any buffer on the way; both sends
 * are stuck before the first recv is posted. */
void test_pieces_huge(void **state)
{
	const size_t bytes = world_part((size_t)24 << 20) + 5;
	uint64_t random = test_seed;
	struct scatter out[2], in[2];
	struct world w;

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	for (uint64_t r = 0; r < 2; r++) {
		scatter_init(&out[r], bytes, r ? 900 : 3, &random);
		scatter_init(&in[r], bytes, r ? 700 : 300, &random);
		scatter_fill(&out[r], r + 1);
		scatter_post(&out[r], w.conns[r][1 - r][0], true, 9);
	}
	world_pump_for(&w, 500);
	for (int r = 0; r < 2; r++)
		scatter_post(&in[r], w.conns[r][1 - r][0], false, 9);
	for (uint64_t r = 0; r < 2; r++) {
		world_expect_ok(&w, &in[r].post, 1);
		world_expect_ok(&w, &out[1 - r].post, 1);
		scatter_check(&in[r], 1 - r + 1);
	}
	for (int r = 0; r < 2; r++) {
		scatter_finish(&out[r]);
		scatter_finish(&in[r]);
	}
	world_close(&w);
}

/* The length is the message's, however it is cut; a wrong one ends the conn, and what came with it
 * is written to the pieces at most. */
void test_pieces_mismatch(void **state)
{
	uint64_t random = test_seed;
	struct scatter out, in;
	struct world w;

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	scatter_init(&out, 20000, 5, &random);
	scatter_init(&in, 20001, 5, &random);
	scatter_fill(&out, 5);
	scatter_post(&out, w.conns[0][1][0], true, 1);
	scatter_post(&in, w.conns[1][0][0], false, 1);
	world_finish(&w, &in.post, 1);
	assert_int_equal(in.post.io.status, TUTTI_ERR_MISMATCH);
	world_close(&w);
	scatter_check_guards(&in);
	scatter_finish(&out);
	scatter_finish(&in);
}
