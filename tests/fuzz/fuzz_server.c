/* Would break: the meeting's server, by what several connections say to it in any order: attackers,
 * and ranks that know the secret and then speak nonsense. The input is a list of actions. */
#include "fuzz.h"

#include "core/auth.h"
#include "core/clock.h"
#include "core/net.h"
#include "core/join/frame.h"
#include "core/join/server_loop.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALLERS     8
#define BODY_MAX    300
#define ACTIONS_MAX 300

enum action { CALL, HANG_UP, SAY_BYTES, SAY_FRAME, PROVE, JOIN, GIVE, LISTEN, ACTIONS };

struct party {
	struct server_loop *loop;
	int port, fd[CALLERS]; /* -1: none; 0 is rank 0's own */
	char name[40];
	bool is_over;
};

static const uint8_t key[TUTTI_KEY_BYTES] = "the key of this meeting";

static void turn(struct party *p)
{
	if (!p->is_over)
		p->is_over = !server_loop_turn(p->loop, 0);
}

/* Whatever the server answers: one that stops reading is another action. */
static size_t hear(int fd, uint8_t *bytes, size_t most)
{
	ssize_t n = fd < 0 ? 0 : recv(fd, bytes, most, MSG_DONTWAIT);
	return n > 0 ? (size_t)n : 0;
}

static void say_frame(int fd, uint32_t kind, uint32_t bytes, uint64_t value)
{
	uint8_t head[FRAME_BYTES];

	frame_put(head, (struct frame){kind, bytes, value});
	fuzz_send(fd, head, sizeof head);
}

/* The handshake of a caller that knows the key. */
static void prove(struct party *p, int fd)
{
	static const uint8_t context[AUTH_CONTEXT_BYTES] = "tutti rendezvous";
	uint8_t hello[AUTH_HELLO_BYTES], answer[AUTH_ANSWER_BYTES], proof[AUTH_PROOF_BYTES];
	struct auth auth;

	auth_hello(&auth, key, context, hello);
	fuzz_send(fd, hello, sizeof hello);
	turn(p);
	turn(p);
	if (hear(fd, answer, sizeof answer) == sizeof answer &&
	    auth_check_answer(&auth, answer, proof) == TUTTI_OK)
		fuzz_send(fd, proof, sizeof proof);
	turn(p);
}

static void join(struct party *p, int fd, uint32_t rank, uint32_t size)
{
	uint8_t body[FRAME_HELLO_BYTES];

	prove(p, fd);
	put_u32(body, FRAME_VERSION);
	put_u32(body + 4, rank);
	put_u32(body + 8, size);
	put_u32(body + 12, 0);
	say_frame(fd, FRAME_HELLO, sizeof body, 60000);
	fuzz_send(fd, body, sizeof body);
	turn(p);
}

static void hang_up(struct party *p, int i)
{
	if (p->fd[i] >= 0)
		close(p->fd[i]);
	p->fd[i] = -1;
}

static void do_one(struct party *p, struct input *in)
{
	uint8_t what = input_byte(in), body[BODY_MAX], heard[4096], how;
	int i = what >> 4 & (CALLERS - 1), fd = p->fd[i];
	size_t n;

	switch ((enum action)(what % ACTIONS)) {
	case CALL:
		if (fd < 0 && !p->is_over)
			p->fd[i] = fuzz_connect(p->name);
		break;
	case HANG_UP:
		hang_up(p, i);
		break;
	case SAY_BYTES:
		n = input_byte(in);
		input_bytes(in, body, n);
		fuzz_send(fd, body, n);
		break;
	case SAY_FRAME:
		n = input_number(in);
		say_frame(fd, input_byte(in), (uint32_t)n, input_number(in));
		break;
	case PROVE:
		prove(p, fd);
		break;
	case JOIN:
		how = input_byte(in);
		join(p, fd, how & 7, how >> 4);
		break;
	case GIVE:
		n = input_byte(in);
		memset(body, (int)n, n);
		say_frame(fd, FRAME_RECORD, (uint32_t)n, 60000);
		fuzz_send(fd, body, n);
		break;
	case LISTEN:
		hear(fd, heard, sizeof heard);
		break;
	case ACTIONS:
		break;
	}
	turn(p);
}

static void open_party(struct party *p, int size)
{
	static unsigned parties;
	struct server_config config = {
		.unix_fd = -1, .port = 1, .size = size, .deadline_ns = deadline_after_ms(600000)};
	int pair[2];

	snprintf(p->name, sizeof p->name, "tutti-fuzz-%d-%u", (int)getpid(), parties++);
	memcpy(config.key, key, sizeof key);
	MUST(net_unix_listen(p->name, CALLERS, &config.listen_fd) == TUTTI_OK);
	fuzz_pair(pair);
	p->fd[0] = pair[0];
	config.own_fd = pair[1];
	for (int i = 1; i < CALLERS; i++)
		p->fd[i] = -1;
	MUST(server_loop_new(&p->loop, &config) == TUTTI_OK);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	struct party party = {0};

	fuzz_fixed_random();
	open_party(&party, input_byte(&in) % 5);
	for (int i = 0; i < ACTIONS_MAX && in.left; i++)
		do_one(&party, &in);
	for (int i = 0; i < CALLERS; i++)
		hang_up(&party, i);
	turn(&party);
	server_loop_free(party.loop);
}
