/* The fixture: see world.h. */
#include "tests/transport/world.h"

#include "core/clock.h"
#include "core/status.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

size_t world_part(size_t whole)
{
	return subject->costs ? whole / (size_t)subject->costs : whole;
}

void world_open(struct world *w, int size)
{
	world_open_with(w, size, WORLD_TIMEOUT_MS);
}

void world_open_with(struct world *w, int size, int timeout_ms)
{
	static uint64_t number;

	assert_true(size <= WORLD_RANKS);
	memset(w, 0, sizeof *w);
	w->subject = subject;
	w->size = size;
	if (subject->world_create)
		w->context = subject->world_create(size, test_seed);
	number++;
	for (int r = 0; r < size; r++) {
		w->configs[r] = config_of(r, size, number, timeout_ms);
		w->configs[r].context = w->context;
		if (subject->transport->open(&w->endpoints[r], &w->configs[r]) != TUTTI_OK)
			fail_msg("open: %s", last_error());
		assert_ptr_equal(w->endpoints[r]->transport, subject->transport);
		assert_true(w->endpoints[r]->address_bytes <= TUTTI_ADDRESS_BYTES);
	}
}

void world_close(struct world *w)
{
	for (int r = 0; r < w->size; r++)
		for (int p = 0; p < w->size; p++)
			for (int c = 0; c < WORLD_CHANNELS; c++)
				world_hang_up(w, r, p, c);
	for (int r = 0; r < w->size; r++)
		subject->transport->destroy(w->endpoints[r]);
	if (subject->world_destroy)
		subject->world_destroy(w->context);
}

struct tutti_conn *world_conn(struct world *w, int rank, int peer, int channel)
{
	const struct tutti_endpoint *other = w->endpoints[peer];
	struct tutti_conn **conn = &w->conns[rank][peer][channel];

	if (*conn)
		return *conn;
	assert_true(subject->transport->reach(w->endpoints[rank], peer, other->address,
					      other->address_bytes) > 0);
	if (subject->transport->connect(w->endpoints[rank], peer, channel, other->address,
					other->address_bytes, conn) != TUTTI_OK)
		fail_msg("connect: %s", last_error());
	assert_int_equal((*conn)->peer, peer);
	assert_int_equal((*conn)->channel, channel);
	assert_ptr_equal((*conn)->endpoint, w->endpoints[rank]);
	return *conn;
}

void world_pair(struct world *w, int a, int b, int channel)
{
	world_conn(w, a, b, channel);
	world_conn(w, b, a, channel);
}

void world_hang_up(struct world *w, int rank, int peer, int channel)
{
	subject->transport->close(w->conns[rank][peer][channel]);
	w->conns[rank][peer][channel] = NULL;
}

static void post_fill(struct post *post, void *buf, size_t bytes, uint32_t tag)
{
	memset(post, 0, sizeof *post);
	post->io.buf = buf;
	post->io.bytes = bytes;
	post->io.tag = tag;
	post->io.status = TUTTI_STATUS_MAX_;
}

void post_send(struct post *post, struct tutti_conn *conn, const void *buf, size_t bytes,
	       uint32_t tag)
{
	post_fill(post, (void *)(uintptr_t)buf, bytes, tag);
	subject->transport->send(conn, &post->io);
	assert_ptr_equal(post->io.conn, conn);
}

void post_recv(struct post *post, struct tutti_conn *conn, void *buf, size_t bytes, uint32_t tag)
{
	post_fill(post, buf, bytes, tag);
	subject->transport->recv(conn, &post->io);
	assert_ptr_equal(post->io.conn, conn);
}

static void collect(struct world *w, struct tutti_done *done)
{
	for (struct tutti_io *io; (io = tutti_done_pop(done));) {
		struct post *post = (struct post *)io;
		assert_false(post->is_done);
		assert_int_not_equal(io->status, TUTTI_STATUS_MAX_);
		post->is_done = true;
		post->when = ++w->completions;
	}
}

static bool pump_one(struct world *w, int rank)
{
	struct tutti_done done;
	bool moved;

	tutti_done_init(&done);
	fail_is_aside = true; /* as transport_progress does, for the engine */
	moved = subject->transport->progress(w->endpoints[rank], &done) != 0;
	fail_is_aside = false;
	collect(w, &done);
	return moved;
}

void world_pump_only(struct world *w, int rank, int passes)
{
	for (int i = 0; i < passes; i++)
		pump_one(w, rank);
}

static bool pump_all(struct world *w)
{
	bool moved = false;

	for (int r = 0; r < w->size; r++)
		if (w->endpoints[r])
			moved |= pump_one(w, r);
	if (!moved && subject->world_step)
		moved = subject->world_step(w->context) != 0;
	return moved;
}

bool world_pump(struct world *w)
{
	bool moved = pump_all(w);

	if (!moved)
		sched_yield();
	return moved;
}

void world_pump_for(struct world *w, int passes)
{
	for (int i = 0; i < passes; i++)
		pump_all(w);
}

void world_finish(struct world *w, const struct post *posts, int n)
{
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);

	for (int i = 0; i < n; i++) {
		for (unsigned pass = 0; !posts[i].is_done; pass++) {
			world_pump(w);
			if (pass % 256 == 0 && clock_now_ns() > deadline)
				fail_msg(
					"io %d of %d never completed (%zu of %zu bytes; seed %llu)",
					i, n, posts[i].io.moved, posts[i].io.bytes,
					(unsigned long long)test_seed);
		}
	}
}

void world_expect_ok(struct world *w, const struct post *posts, int n)
{
	world_finish(w, posts, n);
	for (int i = 0; i < n; i++)
		if (posts[i].io.status != TUTTI_OK)
			fail_msg("io %d of %d: %s: %s", i, n,
				 tutti_status_string(posts[i].io.status), posts[i].io.conn->error);
}

struct tutti_endpoint_config config_of(int rank, int size, uint64_t number, int timeout_ms)
{
	struct tutti_endpoint_config config = {
		.rank = rank,
		.size = size,
		.host_id = "conformance",
		.comm_id = {test_seed ^ 0x7475747469u, number},
		.timeout_ms = timeout_ms,
		.checksum = subject->has_checksums,
		.tls = subject->has_tls,
		.reconnect = subject->reconnect,
		.reconnect_ms = 10000,
		.reconnect_tries = 1000,
		.is_named = 1,
	};

	bytes_fill(config.key, sizeof config.key, test_seed);
	return config;
}

/* Also for random_words, where ThreadSanitizer is not to look. */
#define UNSEEN __attribute__((no_sanitize("thread")))

static UNSEEN inline uint64_t random_word(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t random_next(uint64_t *state)
{
	return random_word(state);
}

size_t random_below(uint64_t *state, size_t n)
{
	return (size_t)(random_next(state) % n);
}

#define CHUNK 512 /* words */

/* Into memory of this thread alone. */
static UNSEEN void random_words(uint64_t *words, size_t bytes, uint64_t *seed)
{
	for (size_t i = 0; i < (bytes + sizeof *words - 1) / sizeof *words; i++)
		words[i] = random_word(seed);
}

static size_t chunk_bytes(size_t left)
{
	return left < CHUNK * sizeof(uint64_t) ? left : CHUNK * sizeof(uint64_t);
}

void bytes_fill(void *buf, size_t bytes, uint64_t seed)
{
	uint64_t words[CHUNK];

	for (size_t at = 0, n; at < bytes; at += n) {
		n = chunk_bytes(bytes - at);
		random_words(words, n, &seed);
		memcpy((uint8_t *)buf + at, words, n);
	}
}

long bytes_wrong(const void *buf, size_t bytes, uint64_t seed)
{
	const uint8_t *p = buf;
	uint64_t words[CHUNK];

	for (size_t at = 0, n; at < bytes; at += n) {
		n = chunk_bytes(bytes - at);
		random_words(words, n, &seed);
		if (memcmp(p + at, words, n) == 0)
			continue;
		for (size_t i = 0; i < n; i++)
			if (p[at + i] != ((const uint8_t *)words)[i])
				return (long)(at + i);
	}
	return -1;
}
