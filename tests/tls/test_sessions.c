/* Would break: that a socket which takes another one's place is a TLS session of its own, in which
 * nothing counts that was recorded on the one before. */
#include "tests/tls/capture.h"
#include "tests/transport/hand.h"
#include "tests/openssl.h"

#include "core/clock.h"
#include "core/tls.h"
#include "transport/registry.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GREETING (AUTH_HELLO_BYTES + AUTH_PROOF_BYTES)

/* One socket of rank 1, by hand. */
struct session {
	int fd;
	struct tls *tls;
};

static struct tcp_conn *conn_of(struct world *w)
{
	return (struct tcp_conn *)w->conns[0][1][0];
}

/* What the session's dialer has said so far. */
static const struct stream *said(const struct session *s)
{
	struct sockaddr_in at;
	socklen_t bytes = sizeof at;
	const struct stream *streams;
	int count;

	assert_int_equal(getsockname(s->fd, (struct sockaddr *)&at, &bytes), 0);
	streams = capture_streams(&count);
	for (int i = 0; i < count; i++)
		if (streams[i].from == ntohs(at.sin_port))
			return &streams[i];
	fail_msg("nothing was said");
	return NULL;
}

/* Nothing has been sent by rank 0. Returns how much of rank 1's it has. */
static uint64_t agree(struct world *w, struct session *s)
{
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);
	uint8_t position[TCP_POSITION_BYTES] = {0};
	struct iovec iov = {position, sizeof position};

	assert_int_equal(tls_send(s->tls, &iov, 1), sizeof position);
	while (iov.iov_len > 0) {
		ssize_t n = tls_recv(s->tls, &iov, 1);
		assert_true(n > 0 || (n < 0 && errno == EAGAIN));
		iov.iov_base = (char *)iov.iov_base + (n > 0 ? n : 0);
		iov.iov_len -= n > 0 ? (size_t)n : 0;
		world_pump(w);
		assert_true(clock_now_ns() < deadline);
	}
	while (conn_of(w)->state != CONN_UP)
		world_pump(w);
	return tcp_position_read(position);
}

static struct session session_open(struct world *w, uint32_t epoch, uint64_t received)
{
	struct session s = {.fd = hand_dial(w, 0)};

	s.tls = hand_secure_again(w, s.fd, 1, 0, 0, epoch);
	assert_int_equal(agree(w, &s), received);
	return s;
}

static void session_close(struct session *s)
{
	tls_free(s->tls);
	close(s->fd);
}

/* Rank 0 hangs up, whatever it says before. */
static void expect_hung_up(struct world *w, int fd)
{
	uint8_t byte;

	while (hand_read(w, fd, &byte, 1))
		;
	close(fd);
}

/* Message n is understood. Returns how many bytes of the stream it is. */
static uint64_t talk(struct world *w, struct session *s, uint32_t n)
{
	uint8_t message[TCP_HEADER_BYTES + 8], in[8];
	struct iovec iov = {message, sizeof message};
	struct post recv;

	hand_header(message, sizeof in, 1, n);
	memset(message + TCP_HEADER_BYTES, (int)n + 1, sizeof in);
	assert_int_equal(tls_send(s->tls, &iov, 1), sizeof message);
	post_recv(&recv, w->conns[0][1][0], in, sizeof in, 1);
	world_expect_ok(w, &recv, 1);
	assert_memory_equal(in, message + TCP_HEADER_BYTES, sizeof in);
	return sizeof message;
}

/* An attacker that has recorded a session, and stands between when the next one is greeted, has its
 * proof but not its key; the session before goes on. */
static void a_recorded_handshake(void **state)
{
	struct session first;
	struct world w;
	size_t bytes;
	int fd;

	capture_begin();
	world_open(&w, 2);
	world_conn(&w, 0, 1, 0);
	first = session_open(&w, 0, 0);
	talk(&w, &first, 0);
	bytes = said(&first)->count;
	fd = hand_dial(&w, 0);
	hand_write(fd, said(&first)->bytes, GREETING);
	expect_hung_up(&w, fd);
	fd = hand_dial(&w, 0);
	assert_true(hand_prove_again(&w, fd, 1, 0, 0, 1));
	assert_true(bytes > GREETING);
	hand_write(fd, said(&first)->bytes + GREETING, bytes - GREETING);
	expect_hung_up(&w, fd);
	talk(&w, &first, 1);
	session_close(&first);
	world_close(&w);
}

/* What was said on the socket before cannot be said again on the next one, which has a handshake of
 * its own. */
static void a_recorded_message(void **state)
{
	struct session first, second;
	uint8_t in[8], record[200];
	struct post recv;
	struct world w;
	size_t before, bytes;
	uint64_t received;

	capture_begin();
	world_open(&w, 2);
	world_conn(&w, 0, 1, 0);
	first = session_open(&w, 0, 0);
	before = said(&first)->count;
	received = talk(&w, &first, 0);
	bytes = said(&first)->count - before;
	assert_in_range(bytes, received, sizeof record);
	memcpy(record, said(&first)->bytes + before, bytes);
	second = session_open(&w, 1, received);
	assert_int_equal(said(&second)->bytes[GREETING], 22); /* a handshake */
	talk(&w, &second, 1);
	hand_write(second.fd, record, bytes);
	post_recv(&recv, w.conns[0][1][0], in, sizeof in, 1);
	world_finish(&w, &recv, 1);
	assert_int_equal(recv.io.status, TUTTI_ERR_AUTH);
	assert_non_null(strstr(w.conns[0][1][0]->error, "is changed on its way"));
	session_close(&first);
	session_close(&second);
	world_close(&w);
}

int main(void)
{
	static const struct conformance reconnecting = {
		.transport = &transport_tcp, .has_tls = true, .reconnect = 2};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recorded_handshake),
		cmocka_unit_test(a_recorded_message),
	};

	if (!openssl_is_here())
		return 77;
	hand_setup();
	subject = &reconnecting;
	return cmocka_run_group_tests_name("sessions", tests, NULL, NULL);
}
