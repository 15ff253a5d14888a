/* Would break: point-to-point messages, by headers of a peer that has the secret and speaks
 * nonsense: slots lent twice, requests and answers that nobody made, lengths that do not fit. */
#include "foreign.h"
#include "fuzz.h"

#include "collectives/p2p/p2p.h"
#include "collectives/p2p/p2p_internal.h"

#include <string.h>

#define ACTIONS_MAX 400
#define WORKS_MAX   64
#define SIZE        3

struct caller {
	struct foreign foreign;
	struct engine *engine;
	struct p2p_header header;
	struct foreign_conn *from; /* header is said by it, once                        */
	uint64_t now_ns;
	struct tutti_work *works[WORKS_MAX];
	uint8_t *buffers[WORKS_MAX];
	int count;
};

/* A payload is whatever its header said, and comes at once. */
static bool says(void *arg, struct foreign_conn *conn, void *bytes, size_t n)
{
	struct caller *c = arg;

	if (n != sizeof c->header) {
		memset(bytes, 'p', n);
		return true;
	}
	if (c->from != conn)
		return false;
	memcpy(bytes, &c->header, n);
	c->from = NULL;
	return true;
}

static uint64_t now_ns(void *arg)
{
	return ((struct caller *)arg)->now_ns;
}

static void post(struct caller *c, struct input *in, enum p2p_side side)
{
	static const size_t counts[] = {0, 1, 16, 17, 300, 3000, 20000, 300000};
	uint8_t how = input_byte(in);
	size_t count = counts[how % 8];
	int peer = how >> 3 & 3;
	struct task_spec spec = {.kind = &p2p_tasks,
				 .memory = &memory_host,
				 .args = {.dtype = TUTTI_U8, .count = count},
				 .p2p = {side, peer, how >> 5 & 1, NULL},
				 .name = side == P2P_SEND ? "send" : "recv",
				 .algorithm = "p2p",
				 .timeout_ms = 1000};

	if (c->count == WORKS_MAX || (peer == 3 && side == P2P_SEND))
		return;
	if (peer == 3)
		spec.p2p.peer = TUTTI_ANY;
	c->buffers[c->count] = malloc(count + 1);
	MUST(c->buffers[c->count]);
	memset(c->buffers[c->count], 'b', count);
	spec.args.send = spec.args.recv = c->buffers[c->count];
	*(side == P2P_SEND ? &spec.send_bytes : &spec.recv_bytes) = count;
	if (engine_submit(c->engine, &spec, &c->works[c->count]) == TUTTI_OK)
		c->count++;
	else
		free(c->buffers[c->count]);
}

static void take_header(struct caller *c, struct input *in)
{
	static const uint64_t counts[] = {0,    1,     16,     17,       300,
					  3000, 20000, 300000, 1u << 30, UINT64_MAX};
	struct p2p_header *h = &c->header;
	uint8_t what = input_byte(in), how = input_byte(in);

	if (c->foreign.count == 0)
		return;
	memset(h, 0, sizeof *h);
	h->kind = what % 14;
	h->tag = how & 1 ? -(how >> 7) : 0;
	h->dtype = how & 2 ? input_byte(in) : TUTTI_U8;
	h->id = input_byte(in);
	h->count = counts[(how >> 3) % 10];
	h->bytes = how & 4 ? counts[input_byte(in) % 10] : h->count;
	if (what & 64) {
		h->returned_count = input_byte(in);
		input_bytes(in, h->returned, h->returned_count % 20);
	}
	if (what == 255)
		input_bytes(in, h, sizeof *h);
	c->from = &c->foreign.conns[(what >> 4 & 3) % c->foreign.count];
	engine_progress(c->engine);
	c->from = NULL;
}

static void do_one(struct caller *c, struct input *in)
{
	uint8_t what = input_byte(in);

	switch (what % 8) {
	case 0:
	case 1:
		post(c, in, P2P_RECV);
		break;
	case 2:
		post(c, in, P2P_SEND);
		break;
	case 3:
		c->foreign.holds = what & 8;
		engine_progress(c->engine);
		break;
	case 4:
		if (what >= 240 && c->foreign.count > 0)
			foreign_break(&c->foreign, &c->foreign.conns[what / 8 % c->foreign.count]);
		engine_progress(c->engine);
		break;
	default:
		take_header(c, in);
	}
}

static void open_engine(struct caller *c)
{
	struct engine_route routes[SIZE] = {{.endpoint = NULL}};
	struct tutti_endpoint *endpoint = &c->foreign.base;
	struct engine_config config = {.size = SIZE,
				       .endpoints = &endpoint,
				       .endpoint_count = 1,
				       .routes = routes,
				       .slice_bytes = 4096,
				       .scratch_bytes = 65536,
				       .policy = wait_policy_on(1, wait_cores()),
				       .helper_policy = wait_policy_on(1, wait_cores()),
				       .now_ns = now_ns,
				       .now_arg = c};

	c->foreign.says = says;
	c->foreign.arg = c;
	foreign_open(&c->foreign);
	for (int rank = 1; rank < SIZE; rank++)
		routes[rank].endpoint = endpoint;
	MUST(engine_create(&c->engine, &config) == TUTTI_OK);
}

void fuzz_one(const uint8_t *bytes, size_t n)
{
	struct input in = {bytes, n};
	static struct caller caller;

	caller = (struct caller){.now_ns = 1000};
	open_engine(&caller);
	for (int i = 0; i < ACTIONS_MAX && in.left; i++)
		do_one(&caller, &in);
	engine_fail(caller.engine, TUTTI_ERR_ABORTED, "the input has ended");
	for (int i = 0; i < caller.count; i++) {
		bool is_done = false;
		work_test(caller.works[i], &is_done);
		MUST(is_done);
		work_release(caller.works[i]);
	}
	engine_destroy(caller.engine);
	for (int i = 0; i < caller.count; i++)
		free(caller.buffers[i]);
}
