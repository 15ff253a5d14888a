/* See hand.h. */
#include "tests/transport/hand.h"

#include "core/clock.h"
#include "core/crc32c.h"
#include "transport/registry.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void hand_setup(void)
{
	static const struct conformance tcp = {.transport = &transport_tcp};
	const char *seed = getenv("TEST_SEED");

	subject = &tcp;
	test_seed = seed ? strtoull(seed, NULL, 0) : clock_now_ns();
	printf("TEST_SEED=%llu\n", (unsigned long long)test_seed);
}

int hand_dial(const struct world *w, int to)
{
	const struct tcp_endpoint *ep = (const struct tcp_endpoint *)w->endpoints[to];
	struct sockaddr_in at = {.sin_family = AF_INET,
				 .sin_port = htons((uint16_t)ep->port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
	return fd;
}

bool hand_read(struct world *w, int fd, void *buf, size_t n)
{
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);
	size_t have = 0;

	while (have < n) {
		ssize_t got = recv(fd, (uint8_t *)buf + have, n - have, MSG_DONTWAIT);
		if (got == 0 || (got < 0 && errno != EAGAIN))
			return false;
		if (got > 0)
			have += (size_t)got;
		world_pump(w);
		assert_true(clock_now_ns() < deadline);
	}
	return true;
}

void hand_write(int fd, const void *buf, size_t n)
{
	assert_int_equal(send(fd, buf, n, MSG_NOSIGNAL), n);
}

/* The proof for these terms; false when the hello is not answered, or the
 * listener says that it is not meant. */
static bool greet(struct world *w, int fd, int from, int to, int channel, bool reconnects,
		  uint32_t epoch, struct auth *auth, uint8_t proof[AUTH_PROOF_BYTES])
{
	const struct tcp_endpoint *other = (const struct tcp_endpoint *)w->endpoints[to];
	struct tcp_endpoint as = {.header_bytes = other->header_bytes, .has_tls = other->has_tls};
	uint8_t context[AUTH_CONTEXT_BYTES], hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];

	memcpy(as.comm_id, w->configs[to].comm_id, sizeof as.comm_id);
	tcp_context(context, &as, from, to, channel, tcp_terms(&as, reconnects, epoch));
	auth_hello(auth, w->configs[to].key, context, hello);
	hand_write(fd, hello, sizeof hello);
	if (!hand_read(w, fd, answer, sizeof answer))
		return false;
	if (memcmp(answer, auth_not_here, sizeof answer) == 0)
		return false;
	assert_int_equal(auth_check_answer(auth, answer, proof), TUTTI_OK);
	return true;
}

bool hand_greet(struct world *w, int fd, int from, int to, int channel,
		uint8_t proof[AUTH_PROOF_BYTES])
{
	struct auth auth;

	return greet(w, fd, from, to, channel, false, 0, &auth, proof);
}

bool hand_prove(struct world *w, int fd, int from, int to, int channel)
{
	uint8_t proof[AUTH_PROOF_BYTES];

	if (!hand_greet(w, fd, from, to, channel, proof))
		return false;
	hand_write(fd, proof, sizeof proof);
	return true;
}

static struct tls *secure(struct world *w, int fd, int from, int to, int channel, bool reconnects,
			  uint32_t epoch)
{
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);
	uint8_t proof[AUTH_PROOF_BYTES], key[TUTTI_KEY_BYTES];
	struct auth auth;
	struct tls *tls;

	assert_true(greet(w, fd, from, to, channel, reconnects, epoch, &auth, proof));
	hand_write(fd, proof, sizeof proof);
	auth_tls_key(&auth, key);
	assert_int_equal(tls_new(&tls, fd, key, true, 1), TUTTI_OK);
	while (tls_handshake(tls) != 0) {
		assert_int_equal(errno, EAGAIN);
		world_pump(w);
		assert_true(clock_now_ns() < deadline);
	}
	return tls;
}

struct tls *hand_secure(struct world *w, int fd, int from, int to, int channel)
{
	return secure(w, fd, from, to, channel, false, 0);
}

struct tls *hand_secure_again(struct world *w, int fd, int from, int to, int channel,
			      uint32_t epoch)
{
	return secure(w, fd, from, to, channel, true, epoch);
}

bool hand_prove_again(struct world *w, int fd, int from, int to, int channel, uint32_t epoch)
{
	uint8_t proof[AUTH_PROOF_BYTES];
	struct auth auth;

	if (!greet(w, fd, from, to, channel, true, epoch, &auth, proof))
		return false;
	hand_write(fd, proof, sizeof proof);
	return true;
}

bool hand_resume(struct world *w, int fd, int from, int to, int channel, uint32_t epoch,
		 uint64_t has, uint64_t *peer_has)
{
	uint8_t position[TCP_POSITION_BYTES];
	uint64_t said = htole64(has);

	if (!hand_prove_again(w, fd, from, to, channel, epoch))
		return false;
	hand_write(fd, &said, sizeof said);
	if (!hand_read(w, fd, position, sizeof position))
		return false;
	*peer_has = tcp_position_read(position);
	return true;
}

void hand_header(uint8_t header[TCP_HEADER_BYTES], uint64_t bytes, uint32_t tag, uint32_t number)
{
	uint64_t wire_bytes = htole64(bytes);
	uint32_t words[2] = {htole32(tag), htole32(number)};

	memcpy(header, &wire_bytes, 8);
	memcpy(header + 8, words, 8);
}

void hand_summed_header(uint8_t header[TCP_SUMMED_BYTES], const void *payload, uint64_t bytes,
			uint32_t tag, uint32_t number)
{
	uint32_t word = htole32(crc32c_by_table(0, payload, bytes));

	hand_header(header, bytes, tag, number);
	memcpy(header + TCP_HEADER_BYTES, &word, 4);
	word = htole32(crc32c_by_table(0, header, TCP_HEADER_BYTES + 4));
	memcpy(header + TCP_HEADER_BYTES + 4, &word, 4);
}

void hand_expect_end(struct world *w, int fd)
{
	uint8_t byte;

	assert_false(hand_read(w, fd, &byte, 1));
	close(fd);
}

void hand_expect_talk(struct world *w)
{
	uint64_t out = 99, in = 0;
	struct post send, recv;

	world_pair(w, 0, 1, 0);
	post_send(&send, w->conns[1][0][0], &out, sizeof out, 1);
	post_recv(&recv, w->conns[0][1][0], &in, sizeof in, 1);
	world_expect_ok(w, &recv, 1);
	world_expect_ok(w, &send, 1);
	assert_int_equal(in, 99);
}

void hand_expect_apart(struct world *w)
{
	struct post recvs[2];
	uint64_t word;

	for (int r = 0; r < 2; r++)
		post_recv(&recvs[r], world_conn(w, r, 1 - r, 0), &word, sizeof word, 1);
	world_finish(w, recvs, 2);
	assert_int_equal(recvs[0].io.status, TUTTI_ERR_TIMEOUT);
	assert_int_equal(recvs[1].io.status, TUTTI_ERR_TIMEOUT);
}
