/* A step that failed, mostly because its connection did: what the communicator fails with. */
#include "collectives/engine/run.h"

#include <stdio.h>
#include <string.h>

/* Call records do not contain the counts of a pair, so this rank writes the error message. */
static void counts_differ(struct engine *e, const struct tutti_work *work,
			  const struct tutti_io *io)
{
	char text[ERROR_BYTES];
	int peer = io->conn->peer;
	size_t count = work->spec.args.counts[RECV_SIDE][peer];

	snprintf(text, sizeof text,
		 "The ranks did not make the same call: in %s #%llu rank %d expects %zu elements "
		 "from rank %d, which sends another number or made another call (%.200s)",
		 work->spec.name, (unsigned long long)work->spec.args.sequence, e->config.rank,
		 count, peer, io->conn->error);
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
		engine_fail_in(e, r->work, io->status, tutti_status_string(io->status));
	else if (io->status == TUTTI_ERR_MISMATCH && r->work->spec.checks_counts)
		counts_differ(e, r->work, io);
	else
		connection_lost(e, r, io);
}
