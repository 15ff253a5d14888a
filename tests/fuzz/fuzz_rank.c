/* Would break: a rank, by answers of the process that serves its meeting: to the handshake, and in
 * frames. The input's first byte says whether the answer to the handshake is right. */
#include "fuzz.h"

#include "core/auth.h"
#include "core/join/wire.h"
#include "core/join/find_server.h"
#include "core/join/secret.h"
#include "core/join/server.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t key[TUTTI_KEY_BYTES] = "the key of this meeting";

/* Random numbers are the same in every run, so the rank's nonce is known before it has said it. */
static void send_right_answer(int fd)
{
	static const uint8_t context[AUTH_CONTEXT_BYTES] = "tutti rendezvous";
	uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES];
	struct auth dialer, listener;

	auth_hello(&dialer, key, context, hello);
	MUST(auth_take_hello(&listener, key, hello, answer) == TUTTI_OK);
	fuzz_send(fd, answer, sizeof answer);
	fuzz_fixed_random();
}

/* What a Unix socket hands out, maybe. */
static void take_offer(struct input *in)
{
	uint8_t offer[OFFER_BYTES], got[TUTTI_KEY_BYTES];
	int port = 0;

	input_bytes(in, offer, sizeof offer);
	if (secret_take_offer(offer, got, &port) == TUTTI_OK)
		MUST(port > 0 && port < 65536);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	struct job job = {.rank = 1, .size = 3, .launcher = "fuzz"};
	struct wire wire = {.rank = 1, .is_served = n % 2, .where = "here:1"};
	uint8_t how = input_byte(&in), body[200];
	uint64_t long_ago_ns = 1; /* it never waits */
	int pair[2];
	tutti_status status;

	if (how & 2) {
		take_offer(&in);
		return;
	}
	fuzz_fixed_random();
	fuzz_pair(pair);
	if (how & 1)
		send_right_answer(pair[1]);
	fuzz_send(pair[1], in.at, in.left);
	shutdown(pair[1], SHUT_WR);
	wire.fd = pair[0];
	status = find_server_own(&wire, key, &job, long_ago_ns);
	MUST(status == TUTTI_OK || !(how & 1));
	status = wire_await(&wire, FRAME_WELCOME, body, FRAME_WELCOME_BYTES, long_ago_ns);
	while (status == TUTTI_OK)
		status = wire_await(&wire, FRAME_ANSWER, body, how % sizeof body, long_ago_ns);
	MUST(status > TUTTI_IN_PROGRESS && status <= TUTTI_ERR_INTERNAL);
	close(pair[0]);
	close(pair[1]);
}
