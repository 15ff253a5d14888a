/* Point-to-point jobs straight into the engines. */
#include "sim_messages.h"

#include "collectives/p2p/p2p.h"

#include "tests/core/memory/proof_kind.h"
#include "tests/random.h"

#include <assert.h>

#define LONG_MS 3600000

static uint64_t state;

uint64_t sim_draw(uint64_t n)
{
	return random_below(&state, n);
}

void sim_messages_open(struct sim_ranks *ranks, int n, uint64_t seed)
{
	struct sim_ranks_config config = {
		.sim = {.size = n, .seed = seed, .alpha_ns = 1000, .beta_ns = 0.1}};
	state = seed;
	sim_ranks_open(ranks, &config);
}

struct tutti_work *sim_issue(struct engine *e, const struct sim_call *c)
{
	size_t bytes = c->count * (c->dtype == TUTTI_U8 ? 1 : 4);
	bool sends = c->side == P2P_SEND;
	struct tutti_work *work = NULL;
	struct task_spec spec = {
		.kind = &p2p_tasks,
		.memory = c->proof ? &memory_proof : &memory_host,
		.send_bytes = sends ? bytes : 0,
		.recv_bytes = sends ? 0 : bytes,
		.args = {.dtype = c->dtype, .count = c->count, .send = c->buf, .recv = c->buf},
		.p2p = {c->side, c->peer, c->tag, c->source},
		.name = sends ? "send" : "recv",
		.algorithm = "p2p",
		.timeout_ms = c->timeout_ms ? c->timeout_ms : LONG_MS};
	return engine_submit(e, &spec, &work) == TUTTI_OK ? work : NULL;
}

struct tutti_work *sim_send(struct engine *e, void *buf, size_t bytes, int peer, int tag)
{
	return sim_issue(
		e, &(struct sim_call){P2P_SEND, buf, bytes, TUTTI_U8, peer, tag, NULL, 0, false});
}

struct tutti_work *sim_recv(struct engine *e, void *buf, size_t bytes, int peer, int tag)
{
	return sim_issue(
		e, &(struct sim_call){P2P_RECV, buf, bytes, TUTTI_U8, peer, tag, NULL, 0, false});
}

bool sim_is_done(struct tutti_work *work)
{
	bool done = false;
	assert(work);
	work_test(work, &done);
	return done;
}

/* Ends it: its status, or IN_PROGRESS. */
tutti_status sim_ended(struct tutti_work *work)
{
	bool done = false;
	if (!work)
		return TUTTI_ERR_INVALID;
	tutti_status status = work_test(work, &done);
	work_release(work);
	return done ? status : TUTTI_IN_PROGRESS;
}
