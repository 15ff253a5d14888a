/* Text for error messages and the trace: the progress of a run, what it waits for, and what a step
 * that failed comes to, mostly because its connection did. */
#include "collectives/engine/run.h"

#include "core/rank_list.h"

#include <stdio.h>
#include <string.h>

static bool run_words_waits(const struct lane_run *l, bool sends)
{
	return l->lane->peer >= 0 && l->lane->sends == sends && l->posted != l->retired;
}

/* Lists the peers of the lanes that have something posted, in one direction. Returns how many. */
static int list_peers(const struct run *r, bool sends, char *text, size_t text_bytes)
{
	struct rank_list list;

	rank_list_begin(&list, text, text_bytes);
	for (uint32_t i = 0; i < r->plan->lane_count; i++) {
		if (run_words_waits(&r->lanes[i], sends))
			rank_list_add(&list, r->lanes[i].lane->peer);
	}
	rank_list_end(&list);
	return list.count;
}

/* Finished slices count whole; of slices in flight the finished steps count. */
static void count_steps(const struct run *r, uint64_t *done, uint64_t *all)
{
	*all = (uint64_t)r->plan->count * r->slices;
	*done = (uint64_t)r->plan->count * r->finished;
	for (uint32_t s = r->finished; s < r->slices && s < r->finished + r->slots; s++)
		*done += r->plan->count - r->left[s % r->slots];
}

/* The first lane that waits, or NULL: to receive, else to send. */
static const struct lane_run *waiting_lane(const struct run *r)
{
	for (int sends = 0; sends < 2; sends++)
		for (uint32_t i = 0; i < r->plan->lane_count; i++)
			if (run_words_waits(&r->lanes[i], sends))
				return &r->lanes[i];
	return NULL;
}

const char *run_progress_text(const struct run *r, char *text, size_t text_bytes)
{
	const struct lane_run *l = waiting_lane(r);
	uint64_t done, all;
	char where[96] = "";

	count_steps(r, &done, &all);
	if (!l) {
		snprintf(text, text_bytes, "%llu of %llu steps are done", (unsigned long long)done,
			 (unsigned long long)all);
		return text;
	}
	const struct step_io *io = &l->ios[l->retired % l->depth]; /* its oldest message */
	const struct step *s = &r->plan->steps[io->step];
	const struct tutti_conn *conn = io->base.op.io.conn;
	if (conn)
		snprintf(where, sizeof where, " (%s%s%s)", conn->endpoint->transport->name,
			 conn->where[0] ? " " : "", conn->where);
	snprintf(text, text_bytes,
		 "%llu of %llu steps are done, next is chunk %u, slice %u %s rank %d%s",
		 (unsigned long long)done, (unsigned long long)all,
		 s->kind == STEP_RECV_REDUCE ? s->dst.chunk : r->plan->refs[s->ref].chunk,
		 io->slice, s->kind == STEP_SEND ? "to" : "from", s->peer, where);
	return text;
}

const char *run_explain(const struct run *r, char *text, size_t text_bytes)
{
	char peers[200];
	int n = list_peers(r, false, peers, sizeof peers);
	const char *what = "for";
	if (n == 0) {
		n = list_peers(r, true, peers, sizeof peers);
		what = "to send to";
	}
	if (n == 0)
		snprintf(text, text_bytes, "for earlier calls");
	else
		snprintf(text, text_bytes, "%s %s", what, peers);
	return text;
}

int run_waits_for(const struct run *r)
{
	const struct lane_run *l = waiting_lane(r);
	return l ? l->lane->peer : -1;
}

/* Call records do not contain the counts of a pair, so this rank writes the error message. */
static void counts_differ(struct engine *e, const struct tutti_work *work,
			  const struct tutti_io *io)
{
	char text[ERROR_BYTES];
	int peer = io->conn->peer;
	size_t count = work->spec.args.counts[RECV_SIDE][peer];
	char call[100];

	snprintf(text, sizeof text,
		 "The ranks did not make the same call: in %s rank %d expects %zu elements "
		 "from rank %d, which sends another number or made another call (%.200s)",
		 collective_words(work, call, sizeof call), e->config.rank, count, peer,
		 io->conn->error);
	if (!engine_suspect(e, work, peer, TUTTI_ERR_MISMATCH, text))
		engine_set_failure(e, TUTTI_ERR_MISMATCH, FAILURE_NO_RANK, text);
}

/* The message of the connection, then the progress of the run. */
static void connection_lost(struct engine *e, const struct run *r, const struct tutti_io *io)
{
	const char *why = io->conn->error;
	char whole[ERROR_BYTES], progress[200];
	size_t bytes = strlen(why);

	if (bytes > 0 && why[bytes - 1] == '.')
		bytes--;
	snprintf(whole, sizeof whole, "%.*s; %s", bytes < 220 ? (int)bytes : 220, why,
		 run_progress_text(r, progress, sizeof progress));
	engine_lost(e, r->work, io->conn->peer, io->status, whole);
}

void run_step_failed(struct engine *e, struct engine_io *own)
{
	const struct tutti_io *io = &own->op.io;
	const struct run *r = ((struct step_io *)own)->lane->run;

	if (!io->conn || io->conn->status == TUTTI_OK)
		engine_fail_in(e, r->work, io->status,
			       engine_queue_error(e, r->work->spec.memory, io->status));
	else if (io->status == TUTTI_ERR_MISMATCH && r->work->spec.checks_counts)
		counts_differ(e, r->work, io);
	else
		connection_lost(e, r, io);
}
