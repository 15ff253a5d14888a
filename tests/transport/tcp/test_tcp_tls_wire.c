/* no_tsan: both ends are in one thread */
/* Would break: what tcp does when TLS finds something wrong, who is told what, and how streams end.
 */
#include "tests/transport/hand.h"
#include "tests/openssl.h"

#include "core/clock.h"
#include "core/tls.h"
#include "transport/registry.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

struct peer {
	struct world w;
	int fd;
	struct tls *tls;
};

static struct tcp_conn *conn_of(struct peer *p)
{
	return (struct tcp_conn *)p->w.conns[0][1][0];
}

/* Rank 0 of a world of two, and a socket that is its rank 1. */
static void peer_open(struct peer *p)
{
	world_open(&p->w, 2);
	world_conn(&p->w, 0, 1, 0);
	p->fd = hand_dial(&p->w, 0);
	p->tls = hand_secure(&p->w, p->fd, 1, 0, 0);
	while (conn_of(p)->state != CONN_UP)
		world_pump(&p->w);
}

static void peer_close(struct peer *p)
{
	tls_free(p->tls);
	if (p->fd >= 0)
		close(p->fd);
	world_close(&p->w);
}

static void peer_say(struct peer *p, const void *bytes, size_t count)
{
	struct iovec iov = {(void *)(uintptr_t)bytes, count};

	assert_int_equal(tls_send(p->tls, &iov, 1), count);
}

/* A message by hand is understood, and so is the answer. */
static void test_format(void **state)
{
	uint8_t message[TCP_HEADER_BYTES + 3], got[TCP_HEADER_BYTES + 3], in[3];
	struct post recv, send;
	struct peer p;
	size_t have = 0;

	peer_open(&p);
	hand_header(message, 3, 7, 0);
	memcpy(message + TCP_HEADER_BYTES, "abc", 3);
	peer_say(&p, message, 10);
	peer_say(&p, message + 10, sizeof message - 10);
	post_recv(&recv, p.w.conns[0][1][0], in, 3, 7);
	post_send(&send, p.w.conns[0][1][0], "abc", 3, 7);
	world_expect_ok(&p.w, &recv, 1);
	world_expect_ok(&p.w, &send, 1);
	assert_memory_equal(in, "abc", 3);
	while (have < sizeof got) {
		struct iovec iov = {got + have, sizeof got - have};
		ssize_t n = tls_recv(p.tls, &iov, 1);
		have += n > 0 ? (size_t)n : 0;
	}
	assert_memory_equal(got, message, sizeof got);
	peer_close(&p);
}

/* What TLS has opened besides is no longer in the socket, of which alone epoll knows: a thread that
 * goes to sleep is told. */
static void test_opened_besides(void **state)
{
	enum { BYTES = 10000 };
	static uint8_t messages[2 * TCP_HEADER_BYTES + BYTES + 4], in[BYTES];
	struct tutti_endpoint *ep;
	struct post recv;
	struct peer p;
	uint32_t n = 0;

	peer_open(&p);
	ep = p.w.endpoints[0];
	for (; conn_of(&p)->is_watched; n++) {
		hand_header(messages, 4, 1, n);
		peer_say(&p, messages, TCP_HEADER_BYTES + 4);
		post_recv(&recv, p.w.conns[0][1][0], in, 4, 1);
		world_expect_ok(&p.w, &recv, 1);
	}
	hand_header(messages, BYTES, 1, n);
	hand_header(messages + TCP_HEADER_BYTES + BYTES, 4, 1, n + 1);
	post_recv(&recv, p.w.conns[0][1][0], in, BYTES, 1);
	while (conn_of(&p)->may_read)
		world_pump(&p.w);
	peer_say(&p, messages, sizeof messages);
	world_expect_ok(&p.w, &recv, 1);
	post_recv(&recv, p.w.conns[0][1][0], in, 4, 1);
	assert_int_equal(subject->transport->arm(ep), 1);
	world_expect_ok(&p.w, &recv, 1);
	peer_close(&p);
}

/* Of a record that the peer's kernel has a part of it can read nothing. So what has just gone into
 * the socket is kept from a record before the byte that the kernel lacks. */
static void test_parts_are_kept(void **state)
{
	static uint8_t bytes[200000];
	struct iovec iov = {bytes, 0};
	struct tcp_conn *c;
	struct peer p;
	int lacking;
	ssize_t n;

	peer_open(&p);
	c = conn_of(&p);
	n = send(c->watch.fd, bytes, sizeof bytes, MSG_DONTWAIT);
	assert_true(n > (ssize_t)TLS_RECORD_BYTES);
	iov.iov_len = (size_t)n;
	do /* the part that nobody reads arrives at once, or nearly */
		assert_int_equal(ioctl(c->watch.fd, SIOCOUTQ, &lacking), 0);
	while (lacking == n);
	tcp_resend_keep(c, &iov, iov.iov_len);
	assert_int_equal(ioctl(c->watch.fd, SIOCOUTQ, &lacking), 0);
	assert_true(c->resend.kept_from == 0 ||
		    c->resend.kept_from + TLS_RECORD_BYTES <= (uint64_t)(n - lacking));
	peer_close(&p);
}

/* Posts a receive; then the peer's word comes to this. */
static void expect_end(struct peer *p, tutti_status status, const char *says)
{
	struct post recv, send;
	char word[4];

	post_recv(&recv, p->w.conns[0][1][0], word, sizeof word, 1);
	world_finish(&p->w, &recv, 1);
	assert_int_equal(recv.io.status, status);
	if (!strstr(p->w.conns[0][1][0]->error, says) ||
	    !strstr(p->w.conns[0][1][0]->error, "rank 1"))
		fail_msg("%s", p->w.conns[0][1][0]->error);
	post_send(&send, p->w.conns[0][1][0], "word", 4, 1);
	world_finish(&p->w, &send, 1);
	assert_int_equal(send.io.status, status);
}

/* A third party writes into the stream. */
static void test_foreign_bytes(void **state)
{
	static const uint8_t record[40] = {23, 3, 3, 0, 35};
	struct peer p;

	for (int how = 0; how < 2; how++) {
		peer_open(&p);
		if (how)
			hand_write(p.fd, record, sizeof record);
		else
			hand_write(p.fd, "GET / HTTP/1.1\r\n\r\n", 18);
		expect_end(&p, TUTTI_ERR_AUTH, "is changed on its way");
		peer_close(&p);
	}
}

/* They are noticed behind a part of a message, too, before anybody goes to sleep. */
static void test_foreign_bytes_behind(void **state)
{
	uint8_t message[TCP_HEADER_BYTES + 4], in[4];
	struct post recv;
	struct peer p;

	peer_open(&p);
	hand_header(message, sizeof in, 1, 0);
	peer_say(&p, message, sizeof message - 1);
	hand_write(p.fd, "GET / HTTP/1.1\r\n\r\n", 18);
	post_recv(&recv, p.w.conns[0][1][0], in, sizeof in, 1);
	while (conn_of(&p)->resend.received == 0)
		world_pump(&p.w);
	assert_true(recv.is_done || subject->transport->arm(p.w.endpoints[0]) == 1);
	world_finish(&p.w, &recv, 1);
	assert_int_equal(recv.io.status, TUTTI_ERR_AUTH);
	peer_close(&p);
}

/* Cut, the stream has been reset; only who says so has closed it. */
static void test_ends(void **state)
{
	struct peer p;

	for (int says_so = 0; says_so < 2; says_so++) {
		peer_open(&p);
		if (says_so)
			assert_int_equal(tls_end(p.tls), 0);
		close(p.fd);
		p.fd = -1;
		expect_end(&p, TUTTI_ERR_PEER,
			   says_so ? "closed its connection" : "Connection reset by peer");
		peer_close(&p);
	}
}

/* What came before the end is received first, also when sends fail meanwhile. */
static void test_last_words(void **state)
{
	uint8_t message[TCP_HEADER_BYTES + 3], in[3], *out = calloc(1, 100000);
	struct post recv, sends[2];
	struct peer p;

	peer_open(&p);
	hand_header(message, 3, 1, 0);
	memcpy(message + TCP_HEADER_BYTES, "bye", 3);
	peer_say(&p, message, sizeof message);
	close(p.fd);
	p.fd = -1;
	for (int i = 0; i < 2; i++) { /* the first of these meets a reset */
		post_send(&sends[i], p.w.conns[0][1][0], out, 100000, 1);
		world_finish(&p.w, &sends[i], 1);
	}
	post_recv(&recv, p.w.conns[0][1][0], in, 3, 1);
	world_expect_ok(&p.w, &recv, 1);
	assert_memory_equal(in, "bye", 3);
	expect_end(&p, TUTTI_ERR_PEER, "lost its connection");
	free(out);
	peer_close(&p);
}

/* The ranks of this world can still talk. */
static void expect_undisturbed(struct world *w)
{
	struct tcp_endpoint *ep = (struct tcp_endpoint *)w->endpoints[0];
	uint64_t deadline = deadline_after_ms(WORLD_TIMEOUT_MS);

	hand_expect_talk(w);
	while (ep->pending.count > 0) {
		world_pump(w);
		assert_true(clock_now_ns() < deadline);
	}
}

/* The connection ends. Where the bytes looked like a record of TLS, an alert goes before. */
static bool ends_with_an_alert(struct world *w, int fd)
{
	static const uint8_t alert[] = {21, 3}; /* the kind of record, the version's first byte */
	uint8_t got[7];
	bool has_alert = hand_read(w, fd, got, 1);

	if (has_alert) {
		assert_true(hand_read(w, fd, got + 1, sizeof got - 1));
		assert_memory_equal(got, alert, sizeof alert);
		hand_expect_end(w, fd);
	} else {
		close(fd);
	}
	return has_alert;
}

/* A greeting that is right up to its proof, and then another program's bytes, or the end. Three
 * seeds in 120 make bytes that look like a record; the last turn always does. */
static void test_taken_over(void **state)
{
	uint8_t noise[300];
	struct world w;

	for (int how = 0; how < 4; how++) {
		bool is_noise = how == 1 || how == 3;
		int fd;
		world_open(&w, 2);
		fd = hand_dial(&w, 0);
		assert_true(hand_prove(&w, fd, 1, 0, 0));
		bytes_fill(noise, sizeof noise, test_seed);
		if (how == 3)
			memcpy(noise, (uint8_t[]){22, 3, 3, 0xff, 0xff}, 5); /* too long a record */
		if (how != 2)
			hand_write(fd, noise, is_noise ? sizeof noise : 1);
		world_pump_for(&w, 20);
		if (!is_noise)
			close(fd);
		expect_undisturbed(&w);
		if (is_noise)
			assert_true(ends_with_an_alert(&w, fd) || how == 1);
		world_close(&w);
	}
}

/* A rank without TLS is no peer of a rank that has it: nothing goes in clear. */
static void test_settings_differ(void **state)
{
	struct world w;

	for (int without = 0; without < 2; without++) {
		world_open_with(&w, 2, 300);
		((struct tcp_endpoint *)w.endpoints[without])->has_tls = false;
		hand_expect_apart(&w);
		world_close(&w);
	}
}

/* Both ends fill the kernel before either reads; then one closes, and all that was done arrives. */
static void test_full_and_closed(void **state)
{
	enum { N = 60, BYTES = 300000 };
	static struct post sends[N], recvs[N + 2];
	uint8_t *out = malloc(BYTES), *in = malloc(BYTES);
	struct world w;
	int done = 0, received;

	world_open(&w, 2);
	world_pair(&w, 0, 1, 0);
	bytes_fill(out, BYTES, test_seed);
	for (int i = 0; i < N; i++)
		post_send(&sends[i], w.conns[0][1][0], out, BYTES, (uint32_t)i);
	world_pump_for(&w, 500);
	while (done < N && sends[done].is_done)
		done++;
	assert_in_range(done, 1, N - 1);
	world_hang_up(&w, 0, 1, 0);
	for (received = 0; received <= done + 1; received++) {
		post_recv(&recvs[received], w.conns[1][0][0], in, BYTES, (uint32_t)received);
		world_finish(&w, &recvs[received], 1);
		if (recvs[received].io.status != TUTTI_OK)
			break;
		expect_bytes(in, BYTES, test_seed);
	}
	/* A record that was sealed goes out whole: one more may arrive that was not done. */
	assert_in_range(received, done, done + 1);
	assert_int_equal(recvs[received].io.status, TUTTI_ERR_PEER);
	assert_non_null(strstr(w.conns[1][0][0]->error, "closed its connection"));
	free(out);
	free(in);
	world_close(&w);
}

int main(void)
{
	static const struct conformance sealed = {.transport = &transport_tcp, .has_tls = true};
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_format),
		cmocka_unit_test(test_opened_besides),
		cmocka_unit_test(test_parts_are_kept),
		cmocka_unit_test(test_foreign_bytes),
		cmocka_unit_test(test_foreign_bytes_behind),
		cmocka_unit_test(test_ends),
		cmocka_unit_test(test_last_words),
		cmocka_unit_test(test_taken_over),
		cmocka_unit_test(test_settings_differ),
		cmocka_unit_test(test_full_and_closed),
	};

	if (!openssl_is_here())
		return 77;
	hand_setup();
	subject = &sealed;
	return cmocka_run_group_tests_name("tcp_tls_wire", tests, NULL, NULL);
}
