/* Cases of the suite: a thread with nothing to do sleeps on event_fd, and always wakes up. */
#include "tests/transport/cases.h"
#include "tests/transport/world.h"

#include "core/clock.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Sleeps, if none of the endpoints has anything to do, for at most ms. False when that passed. */
static bool doze(struct tutti_endpoint *const *endpoints, int n, int ms)
{
	struct pollfd pollfds[2];

	for (int i = 0; i < n; i++) {
		pollfds[i].fd = subject->transport->event_fd(endpoints[i]);
		pollfds[i].events = POLLIN;
		if (subject->transport->arm(endpoints[i]) != 0)
			return true;
	}
	return poll(pollfds, (nfds_t)n, ms) > 0;
}

static uint64_t cpu_now_us(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
	return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* One message both ways, so that the connection is up. */
static void warm_up(struct world *w)
{
	struct post sends[2], recvs[2];
	uint64_t out = 1, in[2];

	world_pair(w, 0, 1, 0);
	for (int r = 0; r < 2; r++) {
		post_send(&sends[r], w->conns[r][1 - r][0], &out, sizeof out, 1);
		post_recv(&recvs[r], w->conns[r][1 - r][0], &in[r], sizeof in[r], 1);
	}
	world_expect_ok(w, sends, 2);
	world_expect_ok(w, recvs, 2);
}

/* With a receive posted and nothing in flight, a thread that sleeps uses next to no CPU. */
void test_idle_uses_no_cpu(void **state)
{
	struct world w;
	struct post recv, send;
	uint64_t word = 0, out = 5, deadline, cpu;
	int wakes = 0;

	world_open(&w, 2);
	warm_up(&w);
	post_recv(&recv, w.conns[0][1][0], &word, sizeof word, 1);
	world_pump_for(&w, 50);
	deadline = deadline_after_ms(400);
	cpu = cpu_now_us();
	while (clock_now_ns() < deadline) {
		doze(w.endpoints, 1, deadline_poll_ms(deadline, 1000));
		world_pump(&w);
		wakes++;
	}
	cpu = cpu_now_us() - cpu;
	assert_false(recv.is_done);
	/* Of 400,000; sanitizers make each wake-up dear. */
	if (cpu > 40000 || wakes > 100)
		fail_msg("%llu us of CPU and %d wake-ups", (unsigned long long)cpu, wakes);
	post_send(&send, w.conns[1][0][0], &out, sizeof out, 1);
	world_expect_ok(&w, &recv, 1);
	world_expect_ok(&w, &send, 1);
	world_close(&w);
}

/* Drives only this rank, sleeping, until the io is done. */
static void finish_asleep(struct world *w, int rank, const struct post *post)
{
	struct tutti_endpoint *others[WORLD_RANKS];
	bool woke = true;

	memcpy(others, w->endpoints, sizeof others);
	memset(w->endpoints, 0, sizeof w->endpoints);
	w->endpoints[rank] = others[rank];
	while (!post->is_done && woke) {
		world_pump(w);
		woke = post->is_done || doze(&others[rank], 1, WORLD_TIMEOUT_MS);
	}
	memcpy(w->endpoints, others, sizeof others);
	assert_true(woke);
}

/* What wakes a sleeper: a message, a peer that makes room, a peer that connects, one that goes. */
void test_wakes_for_message(void **state)
{
	const size_t bytes = world_part((size_t)16 << 20);
	struct world w;
	struct post send, recv;
	uint64_t out = 5, in = 0;
	char *big = calloc(2, bytes);

	world_open(&w, 3);
	warm_up(&w);
	post_recv(&recv, w.conns[0][1][0], &in, sizeof in, 1);
	while (doze(w.endpoints, 1, 0))
		world_pump(&w);
	post_send(&send, w.conns[1][0][0], &out, sizeof out, 1);
	finish_asleep(&w, 1, &send);
	finish_asleep(&w, 0, &recv);
	assert_int_equal(in, 5);

	post_send(&send, w.conns[0][1][0], big, bytes, 2);
	world_pump_for(&w, 100);
	post_recv(&recv, w.conns[1][0][0], big + bytes, bytes, 2);
	while (world_pump(&w), !recv.is_done || !send.is_done)
		assert_true(doze(w.endpoints, 2, WORLD_TIMEOUT_MS));

	post_recv(&recv, w.conns[0][1][0], &in, sizeof in, 1);
	while (doze(w.endpoints, 1, 0))
		world_pump(&w);
	world_hang_up(&w, 1, 0, 0);
	finish_asleep(&w, 0, &recv);
	assert_int_equal(recv.io.status, TUTTI_ERR_PEER);
	free(big);
	world_close(&w);
}

#define THREADS 4
#define ROUNDS  400

struct sleeper {
	struct world *w;
	int rank;
	char problem[300];
};

/* Mostly small, now and then more than fits into the buffers on the way. */
static size_t size_of(int from, int to, int round)
{
	uint64_t random = test_seed + (uint64_t)((from * THREADS + to) * ROUNDS + round);

	switch (random_below(&random, 64)) {
	case 0:
		return random_below(&random, 3 << 20);
	case 1:
	case 2:
	case 3:
		return random_below(&random, 100000);
	default:
		return random_below(&random, 64);
	}
}

static bool wait_all(struct sleeper *s, struct post *posts, int left)
{
	struct tutti_endpoint *endpoint = s->w->endpoints[s->rank];
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);

	while (left > 0) {
		struct tutti_done done;
		tutti_done_init(&done);
		int moved = subject->transport->progress(endpoint, &done);
		for (struct tutti_io *io; (io = tutti_done_pop(&done)); left--) {
			((struct post *)io)->is_done = true;
			if (io->status != TUTTI_OK)
				snprintf(s->problem, sizeof s->problem, "%s", io->conn->error);
		}
		if (s->problem[0])
			return false;
		if (!moved && left > 0 &&
		    (subject->transport->event_fd
			     ? !doze(&endpoint, 1, deadline_poll_ms(deadline, WORLD_TIMEOUT_MS))
			     : (sched_yield(), clock_now_ns() > deadline))) {
			for (int p = 0; p < 2 * THREADS; p++)
				if (posts[p].io.conn && !posts[p].is_done)
					snprintf(s->problem, sizeof s->problem,
						 "rank %d was never woken: %s %d, %zu of %zu bytes",
						 s->rank, p % 2 ? "recv from" : "send to", p / 2,
						 posts[p].io.moved, posts[p].io.bytes);
			return false;
		}
	}
	return true;
}

/* Some messages go, and some are taken, in two pieces that lie side by side. */
static void cut(struct tutti_io *io, struct tutti_piece pieces[2], uint64_t *random)
{
	size_t first = io->bytes < 2 ? 0 : random_below(random, io->bytes);

	if (first == 0)
		return;
	pieces[0] = (struct tutti_piece){io->buf, first};
	pieces[1] = (struct tutti_piece){(uint8_t *)io->buf + first, io->bytes - first};
	io->pieces = pieces;
	io->piece_count = 2;
}

static bool round_of_all(struct sleeper *s, int round, uint8_t *out, uint8_t *in, size_t stride)
{
	struct post posts[2 * THREADS];
	struct tutti_piece pieces[2 * THREADS][2];
	uint64_t random = test_seed ^ (uint64_t)(round * THREADS + s->rank);

	memset(posts, 0, sizeof posts);
	for (volatile size_t spin = random_below(&random, 20000); spin > 0; spin--)
		;
	for (int p = 0; p < THREADS; p++) {
		struct tutti_conn *conn = s->w->conns[s->rank][p][0];
		struct tutti_io *send = &posts[2 * p].io, *recv = &posts[2 * p + 1].io;
		if (p == s->rank)
			continue;
		*send = (struct tutti_io){.buf = out + (size_t)p * stride,
					  .bytes = size_of(s->rank, p, round),
					  .tag = (uint32_t)round};
		*recv = (struct tutti_io){.buf = in + (size_t)p * stride,
					  .bytes = size_of(p, s->rank, round),
					  .tag = (uint32_t)round};
		bytes_fill(send->buf, send->bytes, (uint64_t)(s->rank * 1000 + round));
		cut(send, pieces[2 * p], &random);
		cut(recv, pieces[2 * p + 1], &random);
		subject->transport->send(conn, send);
		subject->transport->recv(conn, recv);
	}
	if (!wait_all(s, posts, 2 * (THREADS - 1)))
		return false;
	for (int p = 0; p < THREADS; p++)
		if (p != s->rank && bytes_wrong(posts[2 * p + 1].io.buf, posts[2 * p + 1].io.bytes,
						(uint64_t)(p * 1000 + round)) >= 0)
			snprintf(s->problem, sizeof s->problem, "round %d: rank %d got wrong bytes",
				 round, s->rank);
	return s->problem[0] == '\0';
}

static void *sleeper_main(void *arg)
{
	const size_t stride = 3 << 20;
	struct sleeper *s = arg;
	const int rounds = (int)world_part(ROUNDS);
	uint8_t *buf = malloc(2 * THREADS * stride);

	for (int p = 0; p < THREADS && buf; p++) {
		const struct tutti_endpoint *other = s->w->endpoints[p];
		if (p != s->rank &&
		    subject->transport->connect(s->w->endpoints[s->rank], p, 0, other->address,
						other->address_bytes, &s->w->conns[s->rank][p][0]))
			snprintf(s->problem, sizeof s->problem, "connect: %s", last_error());
	}
	for (int round = 0; buf && round < rounds && !s->problem[0]; round++)
		round_of_all(s, round, buf, buf + THREADS * stride, stride);
	free(buf);
	return NULL;
}

/* Ranks as threads that sleep whenever they may: no wake-up is lost, no memory is shared. */
void test_threads_never_miss(void **state)
{
	struct world w;
	struct sleeper sleepers[THREADS];
	pthread_t threads[THREADS];

	world_open(&w, THREADS);
	for (int r = 0; r < THREADS; r++) {
		sleepers[r] = (struct sleeper){.w = &w, .rank = r};
		assert_int_equal(pthread_create(&threads[r], NULL, sleeper_main, &sleepers[r]), 0);
	}
	for (int r = 0; r < THREADS; r++)
		pthread_join(threads[r], NULL);
	for (int r = 0; r < THREADS; r++)
		if (sleepers[r].problem[0])
			fail_msg("seed %llu: %s", (unsigned long long)test_seed,
				 sleepers[r].problem);
	world_close(&w);
}
